//! The device that `request` and `listen` stand in for.

use std::fs;
use std::path::Path;
use std::time::Duration;

use ropeway::pipe::PipeConfig;
use ropeway::{Builder, CarrierKind, Client, ReconnectConfig};
use ropeway_net::pem::{is_token, looks_like, reason_in};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject};
use tokio::time::timeout;

use crate::args::DeviceArgs;
use crate::data_dir::{ClientFile, DataDir, DataDirError, DeviceKey};
use crate::error::CommandError;

/// Begins a client that finds the gateway by what `up` left in the data folder.
pub(crate) fn builder(args: &DeviceArgs, data: &DataDir) -> Result<(Builder, ClientFile), CommandError> {
    let file = data.client()?;
    let reconnect = ReconnectConfig { spread: RECONNECT_SPREAD, max: RECONNECT_MAX, ..ReconnectConfig::default() };
    let mut builder = Client::builder().gateway(&file.gateway).reconnect(reconnect);
    for point in &file.access_points {
        builder = builder.access_point_on(point.address, point.carriers.iter().copied());
    }
    for carrier in &args.carriers {
        builder = builder.carrier(*carrier);
    }
    for host in &file.hosts {
        builder = builder.served_host(host);
    }
    if let Some(ca) = &file.ca {
        builder = builder.trust(authorities(ca)?);
    }
    builder = match (&args.ticket, &file.ticket) {
        (Some(path), _) => builder.ticket(ticket(path, GET_TICKET)?),
        (None, Some(path)) => builder.ticket(ticket(path, UP_MAKES_IT)?).app(&file.app),
        (None, None) => {
            let message =
                "the gateway takes the tickets of other issuers only; give one with --ticket and --device-key";
            return Err(CommandError::Usage(message.to_owned()));
        }
    };
    let key_path = args.device_key.as_ref().unwrap_or(&file.device_key);
    let seed = DeviceKey::read(key_path)?.seed().ok_or_else(|| {
        CommandError::Usage(format!("{} is a public key; the device needs the private one", key_path.display()))
    })?;
    builder = builder.device_key(seed);
    builder = match (&args.device, &args.ticket) {
        (Some(id), _) => builder.device_id(id.to_string()),
        (None, None) => builder.device_id(new_id()?),
        // Another ticket allows the name made from the key, or one that only its owner knows.
        (None, Some(_)) => builder,
    };
    Ok((builder, file))
}

/// Has the client fetch the access list, which names what other ways than the link lead to. Until it comes, the sealed pipes that `up`
/// wrote down may be used.
pub(crate) fn with_list(mut builder: Builder, file: &ClientFile, data: &DataDir) -> Result<Builder, CommandError> {
    for key in &file.list_keys {
        let damaged = || data.client_damaged(format!("the key {} of access lists is not 32 bytes in Base64", key.id));
        builder = builder.list_key(&key.id, key.bytes().ok_or_else(damaged)?);
    }
    let pipe_key = match file.pipe_keys.first() {
        Some(key) => {
            let damaged = |reason: &str| data.client_damaged(format!("the key of the sealed pipe is none: {reason}"));
            let config = key.bytes().ok_or_else(|| damaged("it is not Base64"))?;
            PipeConfig::parse(&config).map_err(|error| damaged(&error.to_string()))?;
            Some((config, key.expires_ms))
        }
        None => None,
    };
    for point in file.access_points.iter().filter(|point| point.carriers.contains(&CarrierKind::Tls)) {
        builder = builder.dispatch("", point.address);
        if let Some((key, expires_ms)) = &pipe_key {
            builder = builder.pipe("", point.address, key.clone(), *expires_ms);
        }
    }
    Ok(builder)
}

/// Closes the link, so that what was acknowledged is on its way before the process ends.
pub(crate) async fn close(client: &Client) {
    // A gateway that is gone is no reason to stay.
    let _ = timeout(CLOSE_TIMEOUT, client.close()).await;
}

fn read(path: &Path, hint: &'static str) -> Result<Vec<u8>, CommandError> {
    fs::read(path).map_err(|source| CommandError::File { path: path.to_owned(), source, hint })
}

/// Reads a ticket. What has not the form of one is refused here: a gateway could only say that it is none.
fn ticket(path: &Path, hint: &'static str) -> Result<String, CommandError> {
    let content = read(path, hint)?;
    match std::str::from_utf8(&content).map(str::trim) {
        Ok(text) if is_token(text) => Ok(text.to_owned()),
        Ok(_) | Err(_) => {
            let reason = format!("this is no ticket (JWT), it looks like {}", looks_like(&content));
            Err(DataDirError::Damaged { path: path.to_owned(), reason, hint }.into())
        }
    }
}

/// Reads the certificates of authorities, and sees that there are some: whoever builds a client knows no file.
fn authorities(path: &Path) -> Result<Vec<u8>, CommandError> {
    let content = read(path, UP_MAKES_IT)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content).collect();
    let reason = match certificates {
        Ok(certificates) if certificates.is_empty() => reason_in("certificate", &content, &pem::Error::NoItemsFound),
        Ok(certificates) if certificates.iter().any(|one| RootCertStore::empty().add(one.clone()).is_err()) => {
            "what is in its PEM is no certificate".to_owned()
        }
        Ok(_) => return Ok(content),
        Err(error) => reason_in("certificate", &content, &error),
    };
    Err(CommandError::Certificates { path: path.to_owned(), reason })
}

/// Names a device that nobody else is: several may run with the development ticket.
fn new_id() -> Result<String, DataDirError> {
    let mut id = [0; 4];
    getrandom::fill(&mut id).map_err(|_| DataDirError::NoRandom)?;
    Ok(format!("dev-{:08x}", u32::from_be_bytes(id)))
}

/// What to do about a ticket that is not there.
const GET_TICKET: &str = "`ropeway ticket --out FILE` issues one";

/// What to do about a file of the data folder that is not there.
const UP_MAKES_IT: &str = "`ropeway up` makes it anew";

/// Window of the first wait after a gateway went away: 1 s. One person at a terminal is no crowd that must be spread.
const RECONNECT_SPREAD: Duration = Duration::from_secs(1);

/// Longest wait between two attempts: 5 s, as someone looks on.
const RECONNECT_MAX: Duration = Duration::from_secs(5);

/// Time for the goodbye, which a busy machine may need.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);
