//! Replies that are partly in a pipe.

use std::fs::File;
use std::io::{Read, Write};
use std::sync::Arc;

use nix::fcntl::{SpliceFFlags, splice};
use seawall_net::{PIPED_BYTES_MAX, Piped, Pipes, ReplySlot, ResponseBody, Server};

use crate::support::{Client, PIPELINED, Random, Toy, eventually, start};

/// A file with random bytes.
struct Records {
    bytes: Vec<u8>,
    file: File,
}

impl Records {
    fn new() -> Self {
        let bytes = Random(11).bytes(PIPED_BYTES_MAX);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        Self { bytes, file }
    }

    fn piped(&self, pipes: &Arc<Pipes>, bytes: usize) -> Option<Piped> {
        pipes.filled(bytes, |pipe, done| {
            let mut from = i64::try_from(done).unwrap();
            let flags = SpliceFFlags::SPLICE_F_NONBLOCK;
            Ok(splice(
                &self.file,
                Some(&mut from),
                pipe,
                None,
                bytes - done,
                flags,
            )?)
        })
    }

    /// Head, pipe, middle, pipe, end; and what the client should get.
    fn reply(&self, slot: ReplySlot, bytes: usize) -> Vec<u8> {
        let info = slot.conn();
        let pipes = info
            .pipes()
            .expect("nothing looks at the bytes of this one");
        let mut body = ResponseBody::new();
        let mut expected = Vec::new();
        for text in ["head", "middle"] {
            body.push(bytes::Bytes::from(text));
            body.push(self.piped(pipes, bytes).expect("a pipe"));
            expected.extend_from_slice(text.as_bytes());
            expected.extend_from_slice(&self.bytes[..bytes]);
        }
        body.push(bytes::Bytes::from("end"));
        expected.extend_from_slice(b"end");
        slot.reply(body);
        expected
    }
}

fn slots(toy: &Toy, client: &mut Client, count: u8) -> Vec<ReplySlot> {
    for n in 0..count {
        client.send(PIPELINED, i32::from(n), &[b'd', n]);
    }
    toy.wait_deferred(usize::from(count));
    let mut slots = toy.take_deferred();
    slots.sort_by_key(|(payload, _)| payload[0]);
    slots.into_iter().map(|(_, slot)| slot).collect()
}

#[test]
fn what_is_in_pipes_goes_out_whole_and_in_order_to_a_slow_reader() {
    let (toy, server) = start();
    let mut client = Client::connect(&server);
    let records = Records::new();
    // More than sockets hold: it goes out in many turns.
    let slots = slots(&toy, &mut client, 12);
    let sizes = [PIPED_BYTES_MAX, 1, 100_000];
    let sent = slots.into_iter().zip(sizes.into_iter().cycle());
    let expected: Vec<_> = sent
        .map(|(slot, bytes)| records.reply(slot, bytes))
        .collect();
    for (n, expected) in (0..).zip(expected) {
        let (correlation, body) = client.reply();
        assert_eq!(correlation, n);
        assert!(body == expected, "reply {n}");
    }
}

/// Pipes that could be filled now.
fn free(records: &Records, pipes: &Arc<Pipes>) -> usize {
    let filled: Vec<_> = std::iter::from_fn(|| records.piped(pipes, 10)).collect();
    let count = filled.len();
    filled
        .into_iter()
        .for_each(|piped| drop(piped.into_vec().unwrap()));
    count
}

#[test]
fn pipes_of_a_reader_that_leaves_are_there_again() {
    let (toy, server): (_, Server) = start();
    let mut witness = Client::connect(&server);
    let info = slots(&toy, &mut witness, 1).remove(0).conn();
    let pipes = info.pipes().unwrap();
    let records = Records::new();
    let before = free(&records, pipes);
    let mut client = Client::connect(&server);
    for slot in slots(&toy, &mut client, 10) {
        records.reply(slot, PIPED_BYTES_MAX);
    }
    client.stream.read_exact(&mut [0; 100_000]).unwrap();
    assert!(free(&records, pipes) < before, "they are in use");
    drop(client);
    eventually("all are free", || free(&records, pipes) == before);
}
