//! Which versions of which API use tagged fields. Derived from the schemas, never typed.

use std::sync::OnceLock;

/// API keys up to here have an entry; Kafka's own end at 93.
const KEYS: usize = 128;
/// A version that is never reached.
const NEVER: i16 = i16::MAX;
/// ApiVersions: its response header stays at version 0, since a client reads it before it knows
/// what the broker speaks (KIP-511).
const API_VERSIONS: i16 = 18;

/// First flexible version by API key.
#[derive(Clone, Copy)]
struct FirstFlexible {
    request: i16,
    response: i16,
}

fn table() -> &'static [FirstFlexible; KEYS] {
    static TABLE: OnceLock<[FirstFlexible; KEYS]> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut table = [FirstFlexible {
            request: NEVER,
            response: NEVER,
        }; KEYS];
        for api in kafka_wire::API_DESCRIPTORS {
            let first = |message: &kafka_wire::MessageDescriptor| {
                message
                    .flexible_versions
                    .map_or(NEVER, |range| range.min().value())
            };
            if let Some(entry) = entry_of(&mut table, api.api_key.value()) {
                entry.request = first(api.request);
                entry.response = first(api.response);
            }
        }
        table
    })
}

fn entry_of(table: &mut [FirstFlexible; KEYS], key: i16) -> Option<&mut FirstFlexible> {
    table.get_mut(usize::try_from(key).ok()?)
}

fn first_flexible(key: i16) -> FirstFlexible {
    let known = usize::try_from(key).ok().and_then(|key| table().get(key));
    known.copied().unwrap_or(FirstFlexible {
        request: NEVER,
        response: NEVER,
    })
}

/// Whether requests of this API at this version have tagged fields, and so header version 2.
/// Versions newer than ours count as flexible if the newest that we know is.
#[must_use]
pub fn request_is_flexible(key: i16, version: i16) -> bool {
    version >= first_flexible(key).request
}

/// Whether responses of this API at this version have a header with tagged fields (version 1).
#[must_use]
pub fn response_header_is_flexible(key: i16, version: i16) -> bool {
    key != API_VERSIONS && version >= first_flexible(key).response
}
