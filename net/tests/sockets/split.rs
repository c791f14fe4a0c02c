//! Frames are found wherever the stream is cut, and bodies arrive unchanged.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::support::{Client, EXCLUSIVE, PIPELINED, Random, eventually, frame, start};

#[test]
fn frames_split_into_single_bytes_are_served() {
    let (_toy, server) = start();
    let mut client = Client::connect(&server);
    let mut stream = frame(EXCLUSIVE, 1, b"efirst");
    stream.extend(frame(PIPELINED, 2, b"esecond"));
    for byte in stream {
        client.raw(&[byte]);
    }
    assert_eq!(client.reply(), (1, b"first".to_vec()));
    assert_eq!(client.reply(), (2, b"second".to_vec()));
}

#[test]
fn frames_cut_at_every_place_in_two_are_served() {
    let (_toy, server) = start();
    let mut client = Client::connect(&server);
    let mut stream = frame(PIPELINED, 1, b"efirst");
    stream.extend(frame(EXCLUSIVE, 2, b"esecond"));
    for cut in 0..stream.len() {
        let (before, after) = stream.split_at(cut);
        client.raw(before);
        // An answer between the halves proves that the first half was read by itself.
        let mut other = Client::connect(&server);
        other.send(EXCLUSIVE, 0, b"e");
        other.reply();
        client.raw(after);
        assert_eq!(client.reply(), (1, b"first".to_vec()), "cut at {cut}");
        assert_eq!(client.reply(), (2, b"second".to_vec()), "cut at {cut}");
    }
}

#[test]
fn large_bodies_of_all_sizes_come_back_unchanged() {
    let (_toy, server) = start();
    let mut client = Client::connect(&server);
    let mut random = Random(7);
    for size in [
        1, 100, 16_384, 65_500, 65_536, 65_537, 131_072, 300_000, 1_048_576, 1_048_577, 5_000_000,
    ] {
        let body = random.bytes(size);
        let mut request = vec![b'e'];
        request.extend_from_slice(&body);
        let mut writer = client.stream.try_clone().unwrap();
        let sender = std::thread::spawn(move || {
            use std::io::Write;
            writer.write_all(&frame(EXCLUSIVE, 9, &request)).unwrap();
        });
        let (correlation, reply) = client.reply();
        sender.join().unwrap();
        assert_eq!(correlation, 9);
        assert!(reply == body, "a body of {size} bytes came back changed");
    }
}

#[test]
fn large_frames_behind_each_other_do_not_share_bytes() {
    let (toy, server) = start();
    *toy.hoard.lock() = Some(Vec::new());
    let mut client = Client::connect(&server);
    let bodies: Vec<Vec<u8>> = (0..24)
        .map(|n| {
            let mut body = vec![b'e'];
            body.extend(Random(n + 1).bytes(200_000 + 1_000 * usize::try_from(n).unwrap()));
            body
        })
        .collect();
    let sent = Arc::new(Mutex::new(bodies.clone()));
    let mut writer = client.stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || {
        use std::io::Write;
        for (n, body) in sent.lock().iter().enumerate() {
            let bytes = frame(PIPELINED, i32::try_from(n).unwrap(), body);
            writer.write_all(&bytes).unwrap();
        }
    });
    for (n, body) in bodies.iter().enumerate() {
        let (correlation, reply) = client.reply();
        assert_eq!(correlation, i32::try_from(n).unwrap());
        assert!(reply == body[1..], "reply {n} has other bytes");
        // Buffers of dropped frames are used again for the next ones.
        if n % 2 == 0 {
            toy.hoard.lock().as_mut().unwrap().clear();
        }
    }
    sender.join().unwrap();
    *toy.hoard.lock() = None;
    eventually("the budget is given back", || {
        server.stats().frame_bytes_reserved == 0
    });
}
