//! One request and its answer over loopback, through the server and through a plain blocking
//! thread, which is what the machine allows.

#![allow(missing_docs, reason = "criterion_group makes functions without")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use crossbeam_channel::{Sender, unbounded};
use seawall_net::wire::RequestHeader;
use seawall_net::{
    Class, ConnInfo, Flow, Limits, Listener, NetConfig, ReplySlot, Request, Server, Service,
};

/// Answers every request with the same bytes, in place or from another thread.
struct Answer {
    bytes: Bytes,
    other: Option<Sender<(ReplySlot, Bytes)>>,
}

impl Service for Answer {
    type Conn = ();

    fn opened(&self, info: &ConnInfo) {
        info.set_logged_in(true);
    }

    fn class(&self, (): &(), _: &RequestHeader) -> Class {
        Class::Pipelined
    }

    fn call(&self, (): &mut (), _: Request, slot: ReplySlot) -> Flow {
        match &self.other {
            None => slot.reply(self.bytes.clone()),
            Some(other) => drop(other.send((slot, self.bytes.clone()))),
        }
        Flow::Done
    }

    fn closed(&self, (): ()) {}
}

fn start(answer_bytes: usize, elsewhere: bool) -> Server {
    let other = elsewhere.then(|| {
        let (sender, receiver) = unbounded::<(ReplySlot, Bytes)>();
        std::thread::spawn(move || receiver.iter().for_each(|(slot, bytes)| slot.reply(bytes)));
        sender
    });
    let service = Answer {
        bytes: Bytes::from(vec![7; answer_bytes]),
        other,
    };
    let config = NetConfig {
        threads: 1,
        limits: Limits::default(),
        listeners: vec![Listener {
            tls: None,
            name: "BENCH".into(),
            addr: SocketAddr::from(([127, 0, 0, 1], 0)),
        }],
    };
    Server::start(config, Arc::new(service)).expect("a server on loopback")
}

/// A thread that reads whole frames and answers each, blocking.
fn plain(answer_bytes: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let addr = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        stream.set_nodelay(true).expect("TCP");
        let mut answer = u32::try_from(answer_bytes + 4)
            .expect("small")
            .to_be_bytes()
            .to_vec();
        answer.resize(answer_bytes + 8, 7);
        while read_frame(&mut stream).is_some() && stream.write_all(&answer).is_ok() {}
    });
    addr
}

fn read_frame(stream: &mut TcpStream) -> Option<usize> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut frame = vec![0; usize::try_from(u32::from_be_bytes(length)).ok()?];
    stream.read_exact(&mut frame).ok()?;
    Some(frame.len())
}

fn request(bytes: usize) -> Vec<u8> {
    let mut frame = u32::try_from(bytes + 10)
        .expect("small")
        .to_be_bytes()
        .to_vec();
    frame.extend_from_slice(b"\0\0\0\x03\0\0\0\x07\xff\xff");
    frame.resize(bytes + 14, 7);
    frame
}

fn measure(c: &mut Criterion, name: &str, addr: SocketAddr, request: &[u8]) {
    let mut stream = TcpStream::connect(addr).expect("connect");
    stream.set_nodelay(true).expect("TCP");
    c.bench_function(name, |b| {
        b.iter(|| {
            stream.write_all(request).expect("write");
            read_frame(&mut stream).expect("read")
        });
    });
}

fn roundtrips(c: &mut Criterion) {
    for (name, sent, answered) in [
        ("1KiB_up", 1024, 50),
        ("1MiB_up", 1024 * 1024, 50),
        ("1MiB_down", 100, 1024 * 1024),
    ] {
        let request = request(sent);
        measure(c, &format!("{name}/plain"), plain(answered), &request);
        let server = start(answered, false);
        measure(
            c,
            &format!("{name}/server"),
            server.local_addrs()[0],
            &request,
        );
        let server = start(answered, true);
        let addr = server.local_addrs()[0];
        measure(c, &format!("{name}/server_other_thread"), addr, &request);
    }
}

criterion_group!(benches, roundtrips);
criterion_main!(benches);
