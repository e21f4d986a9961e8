//! What the tests stand on: a certificate authority, a gateway small enough to be told what to do, and its service.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

pub(crate) mod gateway;
mod relay;
pub(crate) mod service;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use ropeway::{Builder, CarrierKind, Client, Way};
use ropeway_net::tls::CertSource;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use socket2::{Domain, Socket, Type};

pub(crate) use self::{gateway::TestGateway, relay::Relay};

/// Seed of the device's key in every test.
pub(crate) const DEVICE_SEED: [u8; 32] = [7; 32];

/// Longest time anything in a test may take in real time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A certificate authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn issue(&self, name: &str) -> Arc<CertSource> {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &self.0).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Arc::new(CertSource::new(vec![certificate.der().clone()], key).unwrap())
    }
}

/// A builder that knows the gateways by one carrier, and takes the link alone: nobody is to be asked for names that only the tests know.
/// Tests send the same request side by side and often, and mean it.
pub(crate) fn builder(authority: &Authority, gateways: &[&TestGateway], carrier: CarrierKind) -> Builder {
    let base =
        Client::builder().gateway("gw.test").trust(authority.pem()).ticket("ticket").app("dev").device_key(DEVICE_SEED);
    let base = base.coalesce(false).frequency_guard(None).way(Way::Link);
    gateways.iter().fold(base, |builder, gateway| builder.access_point_on(gateway.address(), [carrier]))
}

/// A gateway and a client that knows it by one carrier.
pub(crate) async fn world(carrier: CarrierKind) -> (TestGateway, Client) {
    let authority = Authority::new();
    let gateway = TestGateway::start(&authority).await;
    let client = builder(&authority, &[&gateway], carrier).build().unwrap();
    (gateway, client)
}

/// An address that swallows every SYN: its queue of connections is full. Dropping it frees the address.
pub(crate) struct Tarpit {
    _sockets: Vec<Socket>,
    address: SocketAddr,
}

impl Tarpit {
    pub(crate) fn new() -> Self {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        let mut sockets = vec![listener];
        for _ in 0..4 {
            let filler = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            filler.set_nonblocking(true).unwrap();
            // Pending for ever once the queue is full, which is what is wanted.
            let _ = filler.connect(&address.into());
            sockets.push(filler);
        }
        Self { _sockets: sockets, address }
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Waits for `condition`, looking whenever the other tasks had their turn.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    });
    assert!(waited.await.is_ok(), "in vain: {what}");
}

/// Fails the test if `future` takes too long.
pub(crate) async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("it takes too long")
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}
