//! What HTTPS records of name servers change about the first call to a host.

use tokio::net::UdpSocket;

use super::*;
use crate::sources::{Sources, SourcesSetup};

/// A name server on loopback that knows every name, and what it was asked for.
struct NameServer {
    address: SocketAddr,
    /// Names and types of the questions.
    asked: Arc<Mutex<Vec<(String, u16)>>>,
}

impl NameServer {
    /// Starts one that has every host at 127.0.0.1, each with a record of HTTP/3, on a port of its own if this is one. Of IPv6 nothing is
    /// said, so that addresses are held back for a moment, in which the record comes.
    async fn start(h3_port: Option<u16>) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let asked = Arc::<Mutex<Vec<(String, u16)>>>::default();
        let log = Arc::clone(&asked);
        tokio::spawn(async move {
            let mut buffer = [0; 2_048];
            loop {
                let (length, peer) = socket.recv_from(&mut buffer).await.unwrap();
                let query = &buffer[..length];
                let question = question(query);
                log.lock().unwrap().push(question.clone());
                let data = match question.1 {
                    A => vec![127, 0, 0, 1],
                    HTTPS => record(h3_port),
                    _ => continue,
                };
                socket.send_to(&reply(query, question.1, &data), peer).await.unwrap();
            }
        });
        Self { address, asked }
    }

    fn resolver(&self, carriers: Vec<CarrierKind>) -> Resolver {
        let setup = SourcesSetup { name_servers: vec![self.address], carriers, ..SourcesSetup::default() };
        let sources = Sources::start(setup, Clock::new(), |_| ()).unwrap();
        resolver(Arc::new(OnceLock::from(Some(sources))))
    }

    fn asked_for_records(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().filter(|(_, kind)| *kind == HTTPS).map(|(name, _)| name.clone()).collect()
    }
}

#[tokio::test]
async fn the_first_call_goes_over_http3_where_a_record_says_so() {
    let authority = Authority::new();
    // Nothing listens for TCP.
    let host = Host::start(authority.issue("api.test"), &["h3"]).await;
    for (url_port, h3_port) in [(host.address.port(), None), (1, Some(host.address.port()))] {
        let server = NameServer::start(h3_port).await;
        let short = short_with(&authority, host.address, |setup| setup.resolver = server.resolver(Vec::new()));
        let request = Request::get(format!("https://api.test:{url_port}/who")).body(Body::empty()).unwrap();
        let trace = Trace::default();
        let been = Been::default();
        let sent = short.send(request, To::Name, &been, &trace);
        let answer = timeout(PATIENCE, sent).await.unwrap().unwrap();
        assert_eq!(answer.version(), http::Version::HTTP_3);
        assert_eq!(trace.peer(), Some(Candidate { address: host.address, carrier: CarrierKind::Quic }));
        assert_eq!(server.asked_for_records(), [format!("_{url_port}._https.api.test")]);
    }
}

#[tokio::test]
async fn records_are_not_asked_for_where_they_are_of_no_use() {
    let authority = Authority::new();
    let host = Host::start(authority.issue("api.test"), &["h2"]).await;
    let port = host.address.port();
    let server = NameServer::start(None).await;
    let call = async |short: Short, host: &str| {
        let request = Request::get(format!("https://{host}:{port}/who")).body(Body::empty()).unwrap();
        text(ask(&short, request, To::Name).await.ok().unwrap()).await;
    };
    let without_quic =
        short_with(&authority, host.address, |setup| setup.resolver = server.resolver(vec![CarrierKind::Tls]));
    call(without_quic, "api.test").await;
    let named = short_with(&authority, host.address, |setup| {
        setup.resolver = server.resolver(Vec::new());
        setup.h3_hosts = Hosts::new([format!("api.test:{port}")]);
    });
    call(named, "api.test").await;
    assert_eq!(server.asked_for_records(), Vec::<String>::new());
}

/// Reads a question: RFC 1035 section 4.1.2.
fn question(query: &[u8]) -> (String, u16) {
    let (mut labels, mut at) = (Vec::new(), 12);
    while query[at] != 0 {
        let end = at + 1 + usize::from(query[at]);
        labels.push(String::from_utf8_lossy(&query[at + 1..end]).into_owned());
        at = end;
    }
    (labels.join("."), u16::from_be_bytes([query[at + 1], query[at + 2]]))
}

/// Writes an answer of one record: RFC 1035 section 4.1.3.
fn reply(query: &[u8], kind: u16, data: &[u8]) -> Vec<u8> {
    let end = 12 + query[12..].iter().position(|byte| *byte == 0).unwrap() + 5;
    let mut reply = query[..end].to_vec();
    (reply[2], reply[3]) = (0x81, 0x80);
    reply[6..12].copy_from_slice(&[0, 1, 0, 0, 0, 0]);
    let length = u16::try_from(data.len()).unwrap().to_be_bytes();
    for part in [&[0xc0, 12][..], &kind.to_be_bytes(), &[0, 1, 0, 0, 0, 60], &length, data] {
        reply.extend_from_slice(part);
    }
    reply
}

/// Writes a record of HTTP/3 at the host itself: RFC 9460 section 2.2.
fn record(port: Option<u16>) -> Vec<u8> {
    let mut data = vec![0, 1, 0, 0, 1, 0, 3, 2, b'h', b'3'];
    if let Some(port) = port {
        data.extend([0, 3, 0, 2]);
        data.extend(port.to_be_bytes());
    }
    data
}

/// Type of IPv4 addresses (RFC 1035 section 3.4.1).
const A: u16 = 1;

/// Type of HTTPS records (RFC 9460 section 14.1).
const HTTPS: u16 = 65;
