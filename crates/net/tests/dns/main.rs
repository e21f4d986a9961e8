//! Names and lists from servers on loopback that answer, lie, or send too much.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use hickory_proto::{
    op::{Message, ResponseCode},
    rr::{
        Name, RData, Record, RecordType,
        rdata::{
            A, AAAA, CNAME, HTTPS, SVCB,
            svcb::{Alpn, IpHint, Mandatory, SvcParamKey, SvcParamValue},
        },
    },
};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use ropeway_net::{
    dial::{Trust, client_config},
    dns::{AddressKind, Dispatch, DnsError, Doh, Fetched, FetchedList, SystemResolver},
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, UdpSocket};

/// A web server with a certificate for `gw.test`, and what a client needs to believe it.
struct Web {
    address: SocketAddr,
    certificate: CertificateDer<'static>,
}

impl Web {
    async fn new(
        protocol: &'static str,
        answer: impl Fn(Request<Bytes>) -> Response<Bytes> + Clone + Send + 'static,
    ) -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["gw.test".into()]).unwrap();
        let certificate = made.cert.der().clone();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .unwrap();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                let (acceptor, answer) = (acceptor.clone(), answer.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(tcp).await else { return };
                    let service = service_fn(move |request: Request<Incoming>| {
                        let answer = answer.clone();
                        async move {
                            let (parts, body) = request.into_parts();
                            let body = body.collect().await.unwrap().to_bytes();
                            Ok::<_, Infallible>(answer(Request::from_parts(parts, body)).map(Full::new))
                        }
                    });
                    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { address, certificate }
    }

    fn config(&self) -> Arc<rustls::ClientConfig> {
        let trust = Trust::Roots(vec![self.certificate.clone()]);
        Arc::new(client_config(&trust, &[b"h2", b"http/1.1"]).unwrap())
    }
}

/// Answers a question as a zone of one host would.
fn zone(query: &[u8]) -> Option<Vec<u8>> {
    let query = Message::from_vec(query).ok()?;
    let asked = query.queries.first()?;
    let mut reply = Message::response(query.metadata.id, query.metadata.op_code);
    reply.add_query(asked.clone());
    let name = asked.name.to_ascii();
    let alias = Name::from_ascii("real.test.").unwrap();
    let record = |name: &Name, ttl, data| Record::from_rdata(name.clone(), ttl, data);
    match (name.as_str(), asked.query_type) {
        ("www.test.", RecordType::A) => {
            reply.add_answer(record(&asked.name, 300, RData::CNAME(CNAME(alias.clone()))));
            reply.add_answer(record(&alias, 40, RData::A(A([192, 0, 2, 1].into()))));
            reply.add_answer(record(&alias, 50, RData::A(A([192, 0, 2, 2].into()))));
        }
        ("www.test.", RecordType::AAAA) => {}
        ("www.test.", RecordType::HTTPS) => {
            let parameters = vec![
                (SvcParamKey::Alpn, SvcParamValue::Alpn(Alpn(vec!["h3".into(), "h2".into()]))),
                (SvcParamKey::Port, SvcParamValue::Port(8443)),
                (SvcParamKey::Ipv4Hint, SvcParamValue::Ipv4Hint(IpHint(vec![A([192, 0, 2, 3].into())]))),
                (SvcParamKey::Ipv6Hint, SvcParamValue::Ipv6Hint(IpHint(vec![AAAA("2001:db8::3".parse().unwrap())]))),
            ];
            for (priority, parameters) in [(2, Vec::new()), (1, parameters)] {
                let service = SVCB::new(priority, Name::root(), parameters);
                reply.add_answer(record(&asked.name, 70, RData::HTTPS(HTTPS(service))));
            }
        }
        ("_8443._https.www.test.", RecordType::HTTPS) => {
            reply.add_answer(record(&asked.name, 70, service(1, Name::root(), Vec::new())));
        }
        ("alias.test.", RecordType::HTTPS) => {
            reply.add_answer(record(&asked.name, 70, service(0, alias, Vec::new())));
            reply.add_answer(record(&asked.name, 70, service(1, Name::root(), Vec::new())));
        }
        ("elsewhere.test.", RecordType::HTTPS) => {
            reply.add_answer(record(&asked.name, 70, service(1, alias, Vec::new())));
        }
        ("strange.test.", RecordType::HTTPS) => {
            let mandatory = SvcParamValue::Mandatory(Mandatory(vec![SvcParamKey::EchConfigList]));
            let parameters = vec![(SvcParamKey::Mandatory, mandatory)];
            reply.add_answer(record(&asked.name, 70, service(1, Name::root(), parameters)));
        }
        ("slow.test.", RecordType::AAAA) => return None,
        ("slow.test.", RecordType::A) => {
            reply.add_answer(record(&asked.name, 9, RData::A(A([192, 0, 2, 4].into()))));
        }
        _ => reply.metadata.response_code = ResponseCode::NXDomain,
    }
    reply.to_vec().ok()
}

/// A record of HTTP/3.
fn service(priority: u16, target: Name, mut parameters: Vec<(SvcParamKey, SvcParamValue)>) -> RData {
    parameters.push((SvcParamKey::Alpn, SvcParamValue::Alpn(Alpn(vec!["h3".into()]))));
    RData::HTTPS(HTTPS(SVCB::new(priority, target, parameters)))
}

async fn name_server() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = [0; 2_048];
        loop {
            let (length, peer) = socket.recv_from(&mut buffer).await.unwrap();
            if let Some(reply) = zone(&buffer[..length]) {
                socket.send_to(&reply, peer).await.unwrap();
            }
        }
    });
    address
}

fn texts(answered: &ropeway_net::dns::Answered) -> Vec<String> {
    answered.addresses.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn name_servers_are_asked_for_each_kind_apart_and_a_slow_one_holds_nothing_back() {
    let resolver = SystemResolver::with_servers(&[name_server().await]);
    let found = resolver.lookup("www.test", AddressKind::V4).await.unwrap();
    assert_eq!((texts(&found), found.ttl), (vec!["192.0.2.1".into(), "192.0.2.2".into()], Duration::from_secs(40)));
    let none = resolver.lookup("www.test", AddressKind::V6).await.unwrap();
    assert_eq!(texts(&none), Vec::<String>::new());
    assert!(matches!(resolver.lookup("gone.test", AddressKind::V4).await, Err(DnsError::NoName)));
    let slow = resolver.lookup("slow.test", AddressKind::V6);
    let quick = resolver.lookup("slow.test", AddressKind::V4);
    tokio::select! {
        biased;
        _ = slow => panic!("nobody answers this"),
        found = quick => assert_eq!(texts(&found.unwrap()), ["192.0.2.4"]),
    }
    let binding = resolver.binding("www.test", 443).await.unwrap().unwrap();
    let hints: Vec<String> = binding.hints.iter().map(ToString::to_string).collect();
    assert_eq!(
        (binding.protocols, hints),
        (vec!["h3".into(), "h2".into()], vec!["192.0.2.3:8443".into(), "[2001:db8::3]:8443".into()])
    );
}

#[tokio::test]
async fn a_record_of_another_port_has_a_name_of_its_own() {
    let resolver = SystemResolver::with_servers(&[name_server().await]);
    let binding = resolver.binding("www.test", 8443).await.unwrap().unwrap();
    assert_eq!((binding.protocols, binding.port), (vec!["h3".into()], None));
}

#[tokio::test]
async fn records_of_aliases_of_other_hosts_and_those_that_cannot_be_followed_are_none() {
    let resolver = SystemResolver::with_servers(&[name_server().await]);
    for host in ["alias.test", "elsewhere.test", "strange.test"] {
        assert_eq!(resolver.binding(host, 443).await.unwrap(), None, "{host}");
    }
}

#[tokio::test]
async fn a_name_without_a_dot_is_the_systems_own() {
    let resolver = SystemResolver::with_servers(&[name_server().await]);
    assert!(!resolver.lookup("localhost", AddressKind::V4).await.unwrap().addresses.is_empty());
}

#[tokio::test]
async fn dns_over_https_is_spoken_over_both_versions() {
    for protocol in ["h2", "http/1.1"] {
        let web = Web::new(protocol, |request| {
            assert_eq!(
                (request.uri().path(), &request.headers()["content-type"]),
                ("/dns-query", &"application/dns-message".parse::<http::HeaderValue>().unwrap())
            );
            Response::new(zone(request.body()).unwrap().into())
        })
        .await;
        let doh = Doh::new(web.config());
        let found = doh.lookup(web.address, "gw.test", "www.test", AddressKind::V4).await.unwrap();
        assert_eq!((texts(&found).len(), found.ttl), (2, Duration::from_secs(40)));
        assert!(doh.binding(web.address, "gw.test", "www.test", 443).await.unwrap().is_some());
        let gone = doh.lookup(web.address, "gw.test", "gone.test", AddressKind::V6).await;
        assert!(matches!(gone, Err(DnsError::NoName)));
        let foreign = doh.lookup(web.address, "other.test", "www.test", AddressKind::V4).await;
        assert!(matches!(foreign, Err(DnsError::Socket { .. })), "the certificate is another's: {foreign:?}");
    }
}

#[tokio::test]
async fn what_is_no_dns_is_an_error_of_its_own() {
    let cases: [(&[u8], u16); 3] = [(b"junk", 200), (b"", 404), (&[0; 65_536], 200)];
    for (body, status) in cases {
        let web = Web::new("http/1.1", move |_| {
            let mut response = Response::new(Bytes::from_static(body));
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            response
        })
        .await;
        let error =
            Doh::new(web.config()).lookup(web.address, "gw.test", "www.test", AddressKind::V4).await.unwrap_err();
        let expected = match (status, body.len()) {
            (404, _) => matches!(error, DnsError::Status { .. }),
            (_, 65_536) => matches!(error, DnsError::Oversized { bytes_max: 65_535, .. }),
            _ => matches!(error, DnsError::Malformed { .. }),
        };
        assert!(expected, "{error}");
    }
}

#[tokio::test]
async fn a_list_is_fetched_unless_it_is_the_one_that_is_known() {
    let web = Web::new("h2", |request| {
        assert_eq!(request.uri().path(), "/.ropeway/list");
        let known = request.headers().get("if-none-match").is_some_and(|tag| tag == "\"7\"");
        let mut response = Response::new(if known { Bytes::new() } else { Bytes::from_static(b"list") });
        *response.status_mut() = if known { StatusCode::NOT_MODIFIED } else { StatusCode::OK };
        let date = if known { "yesterday" } else { "Mon, 21 Sep 2026 14:13:20 GMT" };
        response.headers_mut().insert("date", date.parse().unwrap());
        response
    })
    .await;
    let dispatch = Dispatch::new(web.config());
    let fetched = dispatch.list(web.address, "gw.test", 0).await.unwrap();
    assert_eq!(fetched, Fetched { date_ms: Some(1_790_000_000_000), list: FetchedList::List("list".into()) });
    let known = dispatch.list(web.address, "gw.test", 7).await.unwrap();
    assert_eq!(known, Fetched { date_ms: None, list: FetchedList::NotModified });
    assert!(matches!(dispatch.list(web.address, "a b", 0).await, Err(DnsError::Name(_))));
}

#[tokio::test]
async fn an_answer_of_httpdns_comes_with_its_signature_or_is_none() {
    let web = Web::new("http/1.1", |request| {
        assert_eq!(request.uri().authority(), None, "the target is in origin form");
        let host = request.uri().query().unwrap().strip_prefix("host=").unwrap().to_owned();
        let answers = if host == "api.test" {
            r#"[{"host":"API.test","ttl_s":60,"v4":["192.0.2.1:8443","nonsense"],"v6":["2001:db8::1"],"h3":true}]"#
        } else {
            "[]"
        };
        let body = format!(r#"{{"time_ms":5,"list_epoch_ms":4,"answers":{answers}}}"#);
        let mut response = Response::new(Bytes::from(body));
        if host != "unsigned.test" {
            let signature = format!("k1;{}", STANDARD.encode([9; 64]));
            response.headers_mut().insert("ropeway-signature", signature.parse().unwrap());
        }
        response
    })
    .await;
    let dispatch = Dispatch::new(web.config());
    let signed = dispatch.resolve(web.address, "gw.test", "api.test").await.unwrap();
    assert_eq!((signed.key_id.as_str(), signed.signature.len(), signed.time_ms), ("k1", 64, 5));
    assert!(signed.body.starts_with(b"{\"time_ms\":5"));
    assert_eq!(texts(&signed.answered.unwrap()), ["192.0.2.1:8443", "2001:db8::1"]);
    assert_eq!(dispatch.resolve(web.address, "gw.test", "other.test").await.unwrap().answered, None);
    let unsigned = dispatch.resolve(web.address, "gw.test", "unsigned.test").await;
    assert!(matches!(unsigned, Err(DnsError::Malformed { .. })));
    assert!(matches!(dispatch.resolve(web.address, "gw.test", "a&b").await, Err(DnsError::Name(_))));
}
