//! Frames, headers, subscriptions, batches.

use bytes::Bytes;
use seawall_net::bench::{FrameFeed, header_at};
use seawall_net::wire::subscription::decode_subscription;
use seawall_storage::records::{DecodeSite, Limits, Records};
use seawall_storage::{Batch, ProducerRules};

/// Decompressed bytes of one batch here: enough for every seed, little enough for many runs.
const RECORDS_BYTES_MAX: u64 = 4 << 20;

/// A stream as a socket delivers it. The first byte says how many bytes come at a time.
pub(crate) fn frame(input: &[u8]) {
    let Some((step, stream)) = input.split_first() else {
        return;
    };
    let mut feed = FrameFeed::default();
    feed.frames_of(stream, usize::from(*step) + 1, 1 << 20);
}

/// A request header of any API and version.
pub(crate) fn header(input: &[u8]) {
    let bytes = Bytes::copy_from_slice(input);
    if let Some(body_at) = header_at(&bytes) {
        assert!(body_at <= bytes.len());
    }
}

/// What a member of a group says it wants.
pub(crate) fn subscription(input: &[u8]) {
    // Refused or not, it ends.
    let _ = decode_subscription(&Bytes::copy_from_slice(input));
}

/// A batch as a producer sends it, with and without its checksum, and its records.
pub(crate) fn batch(input: &[u8]) {
    let bytes = Bytes::copy_from_slice(input);
    for check_crc in [true, false] {
        let rules = ProducerRules {
            max_batch_bytes: 1 << 20,
            zstd: true,
            check_crc,
        };
        let Ok(batch) = Batch::from_producer(&bytes, &rules) else {
            continue;
        };
        let limits = Limits {
            bytes_max: RECORDS_BYTES_MAX,
        };
        let Ok(records) = Records::decode(&batch, &limits, DecodeSite::Tool) else {
            continue;
        };
        for record in records {
            let Ok(record) = record else { break };
            assert!(record.headers.iter().count() <= record.headers.len());
        }
    }
}
