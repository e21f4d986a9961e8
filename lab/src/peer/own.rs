//! Ropeway's client, as an app would make it: with the addresses of the gateways built in, and no more.

use std::{env, path::PathBuf};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject as _};
use serde::Deserialize;

use super::{
    file_of,
    lines::{self, Answered, Asked, Failure},
};
use crate::error::CommandError;

/// Serves with one client. Without a gateway to go through it says so to every request.
pub(super) async fn serve() -> Result<(), CommandError> {
    let client = client().map_err(|error| error.to_string());
    let settings = "access points are the name and every address of the servers with their site, as an app has them built in, and the key \
                    of the access list, which the link brings; the link is \
                    opened when the app starts, as the README advises, but for the work `cold`; else the library's defaults";
    let begin = || client.iter().for_each(ropeway::Client::connect);
    lines::serve("ropeway", env!("CARGO_PKG_VERSION"), settings, begin, |asked| fetch(client.clone(), asked)).await;
    Ok(())
}

/// What `ropeway up` leaves for clients in its data folder, as far as it is needed here.
#[derive(Debug, Deserialize)]
struct ClientFile {
    gateway: String,
    app: String,
    hosts: Vec<String>,
    device_key: PathBuf,
    ticket: PathBuf,
    list_keys: Vec<ListKey>,
}

/// A key that signs access lists.
#[derive(Debug, Deserialize)]
struct ListKey {
    id: String,
    /// Its 32 bytes in Base64.
    public_key: String,
}

fn client() -> Result<ropeway::Client, CommandError> {
    let folder = env::var_os(DATA).map(PathBuf::from);
    let folder = folder.ok_or_else(|| CommandError::Usage(format!("{DATA} names no data folder of `ropeway up`")))?;
    let read = |path: PathBuf| {
        let path = folder.join(path);
        std::fs::read(&path).map_err(|error| CommandError::Usage(format!("cannot read {}: {error}", path.display())))
    };
    let text = read("client.json".into())?;
    let file: ClientFile =
        serde_json::from_slice(&text).map_err(|error| CommandError::Usage(format!("client.json: {error}")))?;
    let mut builder = ropeway::Client::builder()
        .gateway(&file.gateway)
        .app(&file.app)
        .ticket(String::from_utf8_lossy(&read(file.ticket)?).trim())
        .device_key(seed(&read(file.device_key)?)?)
        // The same request is sent again and again, and each is measured.
        .coalesce(false)
        .frequency_guard(None);
    for host in &file.hosts {
        builder = builder.served_host(host);
    }
    for key in &file.list_keys {
        let bytes = STANDARD.decode(&key.public_key).ok().and_then(|bytes| bytes.try_into().ok());
        let malformed = || CommandError::Usage(format!("client.json: list key {} is not 32 bytes in Base64", key.id));
        builder = builder.list_key(&key.id, bytes.ok_or_else(malformed)?);
    }
    let access_points = env::var(ACCESS_POINTS).unwrap_or_default();
    for point in access_points.split(',').filter(|point| !point.is_empty()) {
        builder = match point.split_once('=') {
            Some((unit, address)) => builder.access_point_in(unit, address),
            None => builder.access_point(point),
        };
    }
    if let Some(ca) = file_of("LAB_CA")? {
        builder = builder.trust(ca);
    }
    builder.build().map_err(|error| CommandError::Usage(format!("ropeway: {error}")))
}

/// Takes the 32 bytes at the end of a private key (RFC 8410, section 7), in the form that `ropeway up` writes.
fn seed(pem: &[u8]) -> Result<[u8; 32], CommandError> {
    let key = PrivatePkcs8KeyDer::from_pem_slice(pem).ok();
    let seed = key.as_ref().and_then(|key| key.secret_pkcs8_der().last_chunk());
    seed.copied().ok_or_else(|| CommandError::Usage("the device key is no Ed25519 key in PEM".to_owned()))
}

async fn fetch(client: Result<ropeway::Client, String>, asked: Asked) -> Result<Answered, Failure> {
    let client = client?;
    let mut request = client.request(asked.method()?, asked.url.as_str()).timeout(asked.deadline());
    if let Some((name, key)) = asked.key() {
        request = request.header(name, key);
    }
    if asked.body_bytes > 0 {
        request = request.body(vec![0; asked.body_bytes]);
    }
    let answer = request.send().await?;
    Ok(Answered { status: answer.status().as_u16(), bytes: answer.bytes().await?.len() })
}

/// Variable that names the data folder of the gateway.
const DATA: &str = "LAB_GATEWAY_DATA";

/// Variable with the access points, separated by commas, each behind the name of its site and an equals sign where it has one.
const ACCESS_POINTS: &str = "LAB_ACCESS_POINTS";
