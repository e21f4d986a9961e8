//! Those who answer in another's place: a captive portal, a wrong certificate, the hijacker's site, a broken balancer.

use std::io;

use http::{HeaderValue, StatusCode, header::LOCATION};
use tokio::net::TcpStream;

use super::{
    authority::Authority,
    web::{self, Handler, handler, text},
};
use crate::topology::plan::HIJACKED_ORIGIN;

/// How a broken balancer treats connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Balancer {
    /// Answers every request by 502, over TLS where that is asked for.
    BadGateway,
    /// Accepts them and says nothing.
    Hangs,
    /// Accepts and resets them.
    Resets,
}

impl Balancer {
    /// Every kind.
    pub(crate) const ALL: [Self; 3] = [Self::BadGateway, Self::Hangs, Self::Resets];

    /// Gives the port, beside the servers, to which connections are redirected: of plain HTTP, and all others.
    pub(crate) fn ports(self) -> (u16, u16) {
        match self {
            Self::BadGateway => (10_901, 10_911),
            Self::Hangs => (10_902, 10_902),
            Self::Resets => (10_903, 10_903),
        }
    }
}

/// Starts a broken balancer in the namespace of the calling thread, with the origin's certificate.
pub(crate) fn start_balancer(balancer: Balancer, authority: &Authority) -> io::Result<()> {
    let (plain, other) = balancer.ports();
    let listener = web::bind_all(plain)?;
    match balancer {
        Balancer::BadGateway => {
            let answer = always(StatusCode::BAD_GATEWAY, "bad gateway\n");
            web::start(listener, None, answer.clone());
            web::start(web::bind_all(other)?, Some(authority.origin()), answer);
        }
        Balancer::Hangs => drop(tokio::spawn(web::accept(listener, hold))),
        Balancer::Resets => drop(tokio::spawn(web::accept(listener, reset))),
    }
    Ok(())
}

/// Reads what comes until the client gives up.
async fn hold(mut stream: TcpStream) {
    // How the client gives up does not matter.
    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
}

/// Resets a connection, as dropping a socket does that does not linger.
async fn reset(stream: TcpStream) {
    // Should it fail, the connection is closed in good order, which is no answer either.
    let _ = stream.set_zero_linger();
}

/// Starts, in the namespace of the calling thread, the portal that every plain request is sent to.
pub(crate) fn start_portal() -> io::Result<()> {
    let answer = handler(|_| async {
        let mut response = text(StatusCode::FOUND, "log in first\n");
        response.headers_mut().insert(LOCATION, HeaderValue::from_static("http://login.captive.test/"));
        Ok(response)
    });
    web::start(web::bind_all(PORTAL_PORT)?, None, answer);
    Ok(())
}

/// Starts, in the namespace of the calling thread, the server that shows a certificate nobody trusts.
pub(crate) fn start_wrong_certificate(authority: &Authority) -> io::Result<()> {
    let answer = always(StatusCode::OK, "not the server you asked for\n");
    web::start(web::bind_all(WRONG_CERTIFICATE_PORT)?, Some(authority.untrusted()), answer);
    Ok(())
}

/// Starts, in the namespace of the calling thread, the site to which hijacked names lead.
pub(crate) fn start_hijacked_site(authority: &Authority) -> io::Result<()> {
    let answer = always(StatusCode::OK, "a page of advertisements\n");
    web::start(web::bind(HIJACKED_ORIGIN.into(), 80)?, None, answer.clone());
    web::start(web::bind(HIJACKED_ORIGIN.into(), 443)?, Some(authority.untrusted()), answer);
    Ok(())
}

fn always(status: StatusCode, words: &'static str) -> Handler {
    handler(move |_| async move { Ok(text(status, words)) })
}

/// Port, at the provider, of the captive portal.
pub(crate) const PORTAL_PORT: u16 = 10_080;

/// Port, at the provider, of the server with the wrong certificate.
pub(crate) const WRONG_CERTIFICATE_PORT: u16 = 10_443;
