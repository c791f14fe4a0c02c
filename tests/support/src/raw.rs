//! A connection without a client library: bytes and frames, any key, any version, any body.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_wire::{
    KafkaMessage, KafkaRequest, RequestResponsePair, encode_request, response_header_version_for,
};
use kafka_wire_core::{ApiVersion, DecodeLimits, Decoder, KafkaDecode, StrBytes};

use crate::wait::SOON;

/// The client id of requests that do not care.
const CLIENT: &str = "test";

/// One connection to the broker. Reads and writes have a deadline; a test that runs into it fails.
pub struct Raw {
    stream: TcpStream,
    next_correlation: i32,
    client: String,
}

impl Raw {
    /// Connects.
    ///
    /// # Panics
    /// When nobody accepts.
    #[must_use]
    pub fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect_timeout(&addr, SOON)
            .unwrap_or_else(|error| panic!("connect to {addr}: {error}"));
        Self::on(stream)
    }

    /// Connects from that address of this machine: on loopback, 127.0.0.2 and so on are other hosts.
    ///
    /// # Panics
    /// When nobody accepts.
    #[must_use]
    pub fn connect_from(host: IpAddr, addr: SocketAddr) -> Self {
        use socket2::{Domain, Socket, Type};
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None).expect("a socket");
        let from = SocketAddr::new(host, 0);
        socket
            .bind(&from.into())
            .unwrap_or_else(|error| panic!("bind {from}: {error}"));
        socket
            .connect_timeout(&addr.into(), SOON)
            .unwrap_or_else(|error| panic!("connect to {addr} from {host}: {error}"));
        Self::on(socket.into())
    }

    fn on(stream: TcpStream) -> Self {
        let mut raw = Self {
            stream,
            next_correlation: 1,
            client: CLIENT.to_owned(),
        };
        raw.patience(SOON);
        raw.stream.set_nodelay(true).expect("set TCP_NODELAY");
        raw
    }

    /// Calls itself by that client id from now on.
    #[must_use]
    pub fn as_client(mut self, client: &str) -> Self {
        client.clone_into(&mut self.client);
        self
    }

    /// Sets how long a read or a write may take.
    ///
    /// # Panics
    /// When the system refuses.
    pub fn patience(&mut self, within: Duration) {
        self.stream
            .set_read_timeout(Some(within))
            .expect("set read timeout");
        self.stream
            .set_write_timeout(Some(within))
            .expect("set write timeout");
    }

    /// The stream below, for tests about the stream itself.
    #[must_use]
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// A second handle on the same socket, for tests that write and read in two threads. It starts counting correlation
    /// ids where this one stands.
    ///
    /// # Panics
    /// When the descriptor can not be duplicated.
    #[must_use]
    pub fn second_handle(&self) -> Self {
        Self {
            stream: self.stream.try_clone().expect("duplicate the socket"),
            next_correlation: self.next_correlation,
            client: self.client.clone(),
        }
    }

    /// Sends bytes as they are; a peer that has closed is not an error here, since hostile input ends that way.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Sends one frame: the length, then `payload`.
    ///
    /// # Panics
    /// When the payload does not fit a frame.
    pub fn send_frame(&mut self, payload: &[u8]) -> bool {
        let length = i32::try_from(payload.len()).expect("a frame fits 32 bits");
        let mut frame = BytesMut::with_capacity(payload.len() + 4);
        frame.put_i32(length);
        frame.put_slice(payload);
        self.send_bytes(&frame)
    }

    /// Sends a request with a given header and body; gives the correlation id.
    pub fn send_body(&mut self, key: i16, version: i16, flexible: bool, body: &[u8]) -> i32 {
        let correlation = self.correlation();
        self.send_frame(&request_payload(
            (key, version),
            correlation,
            flexible,
            body,
        ));
        correlation
    }

    /// Sends a request; gives the correlation id.
    ///
    /// # Panics
    /// When the request can not be encoded at that version: the test is wrong.
    pub fn send<R: KafkaRequest>(&mut self, version: i16, request: &R) -> i32 {
        let correlation = self.correlation();
        let frame = encode_frame_as(&self.client, version, correlation, request);
        self.send_bytes(&frame);
        correlation
    }

    /// Reads the answer to a request sent as `correlation`.
    ///
    /// # Panics
    /// When the connection closes, the answer belongs to another request, or it does not decode.
    pub fn receive<R: RequestResponsePair>(
        &mut self,
        version: i16,
        correlation: i32,
    ) -> R::Response {
        let frame = self
            .read_frame()
            .unwrap_or_else(|| panic!("closed instead of an answer to {}", R::NAME));
        decode_response::<R>(version, correlation, frame)
    }

    /// Sends a request and reads its answer.
    ///
    /// # Panics
    /// As `send` and `receive`.
    pub fn call<R: RequestResponsePair>(&mut self, version: i16, request: &R) -> R::Response {
        let correlation = self.send(version, request);
        self.receive::<R>(version, correlation)
    }

    /// Reads one frame; `None` when the peer closed or reset instead.
    ///
    /// # Panics
    /// When neither happens before the deadline, or the frame is cut.
    pub fn read_frame(&mut self) -> Option<Bytes> {
        let length = self.read_length()?;
        let frame = self.read_body(length);
        assert!(frame.is_some(), "the broker cut a frame");
        frame
    }

    /// As [`Raw::read_frame`] from a broker that may be killed at any time, also in the middle of a frame.
    ///
    /// # Panics
    /// When neither a frame nor a close comes before the deadline.
    pub fn read_frame_unless_killed(&mut self) -> Option<Bytes> {
        let length = self.read_length()?;
        self.read_body(length)
    }

    /// Waits until the peer closes, and asserts that nothing came before.
    ///
    /// # Panics
    /// When bytes come, or the connection is still open at the deadline.
    pub fn expect_closed(&mut self, what: &str) {
        let frame = self.read_frame();
        assert!(frame.is_none(), "{what}: expected a close, got {frame:?}");
    }

    /// Says that this side sends nothing more.
    pub fn finish_sending(&mut self) {
        self.stream.shutdown(Shutdown::Write).ok();
    }

    /// Closes with a reset instead of an orderly end.
    ///
    /// # Panics
    /// When the system refuses.
    pub fn reset(self) {
        let socket = socket2::Socket::from(self.stream);
        socket
            .set_linger(Some(Duration::ZERO))
            .expect("set SO_LINGER");
    }

    /// The correlation id of the next request.
    #[must_use]
    pub fn next_correlation(&self) -> i32 {
        self.next_correlation
    }

    fn correlation(&mut self) -> i32 {
        let id = self.next_correlation;
        self.next_correlation += 1;
        id
    }

    fn read_length(&mut self) -> Option<usize> {
        let mut length = [0; 4];
        let length = self
            .read_fully(&mut length)
            .then(|| i32::from_be_bytes(length))?;
        Some(usize::try_from(length).expect("a frame length from the broker"))
    }

    fn read_body(&mut self, length: usize) -> Option<Bytes> {
        let mut frame = vec![0; length];
        self.read_fully(&mut frame).then(|| frame.into())
    }

    fn read_fully(&mut self, buffer: &mut [u8]) -> bool {
        match self.stream.read_exact(buffer) {
            Ok(()) => true,
            Err(error) if is_close(error.kind()) => false,
            Err(error) => panic!("neither an answer nor a close: {error}"),
        }
    }
}

fn is_close(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    )
}

/// Header and body of a request with client id "test", without the length.
#[must_use]
pub fn request_payload(
    (key, version): (i16, i16),
    correlation: i32,
    flexible: bool,
    body: &[u8],
) -> Bytes {
    let mut out = BytesMut::with_capacity(body.len() + 32);
    out.put_i16(key);
    out.put_i16(version);
    out.put_i32(correlation);
    out.put_i16(4);
    out.put_slice(b"test");
    if flexible {
        out.put_u8(0);
    }
    out.put_slice(body);
    out.freeze()
}

/// A whole frame of a request.
///
/// # Panics
/// When the request can not be encoded at that version: the test is wrong.
#[must_use]
pub fn encode_frame<R: KafkaRequest>(version: i16, correlation: i32, request: &R) -> BytesMut {
    encode_frame_as(CLIENT, version, correlation, request)
}

fn encode_frame_as<R: KafkaRequest>(
    client: &str,
    version: i16,
    correlation: i32,
    request: &R,
) -> BytesMut {
    let mut frame = BytesMut::new();
    let limits = kafka_wire::OutboundFrameLimits::new(256 << 20);
    let client = Some(StrBytes::from(client));
    encode_request(
        &mut frame,
        correlation,
        client,
        request,
        ApiVersion::new(version),
        limits,
    )
    .unwrap_or_else(|error| panic!("encode {} v{version}: {error}", R::NAME));
    frame
}

/// Takes an answer apart, and asserts that it has the expected correlation id and no byte too many.
///
/// # Panics
/// When one of these does not hold.
pub fn decode_response<R: RequestResponsePair>(
    version: i16,
    correlation: i32,
    frame: Bytes,
) -> R::Response {
    let header =
        response_header_version_for::<R>(ApiVersion::new(version)).expect("a supported version");
    let mut decoder = Decoder::new(frame, DecodeLimits::default()).expect("a frame within limits");
    let got = decoder.read_i32().expect("a correlation id");
    assert_eq!(
        got,
        correlation,
        "correlation id of the answer to {} v{version}",
        R::NAME
    );
    if header == 1 {
        decoder
            .read_tagged_fields()
            .expect("tagged fields of the response header");
    }
    let response = R::Response::decode(&mut decoder, ApiVersion::new(version))
        .unwrap_or_else(|error| panic!("decode the answer to {} v{version}: {error}", R::NAME));
    decoder
        .finish()
        .unwrap_or_else(|error| panic!("the answer to {} v{version}: {error}", R::NAME));
    response
}

/// Whether a request type is flexible at a version, so that its header ends in tagged fields.
#[must_use]
pub fn is_flexible<R: KafkaMessage>(version: i16) -> bool {
    R::is_flexible(ApiVersion::new(version))
}
