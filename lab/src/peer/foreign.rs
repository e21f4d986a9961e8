//! reqwest, with the retries its documentation shows.

use http::Method;
use reqwest::{Certificate, Client, retry, tls::Version};

use super::{
    file_of,
    lines::{self, Answered, Asked, Failure},
};
use crate::error::CommandError;

/// Serves with one client.
pub(super) async fn serve() -> Result<(), CommandError> {
    let client = client(file_of("LAB_CA")?)?;
    let settings = "retry::for_host with a classifier for GET: any error or 5xx is tried again, at most twice, within the default \
                    budget of 20 % (docs.rs/reqwest, module retry); no connect timeout; HTTP/2";
    lines::serve("reqwest", VERSION, settings, || (), |asked| fetch(client.clone(), asked)).await;
    Ok(())
}

fn client(ca: Option<Vec<u8>>) -> Result<Client, CommandError> {
    // Only fails where another part of this process chose before, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let failed = |error: reqwest::Error| CommandError::Usage(format!("reqwest: {error}"));
    let again = retry::for_host(HOST).classify_fn(|tried| {
        let failed = tried.status().is_none_or(|status| status.is_server_error());
        if tried.method() == Method::GET && failed { tried.retryable() } else { tried.success() }
    });
    let mut builder = Client::builder().retry(again).tls_version_min(Version::TLS_1_2).no_proxy();
    if let Some(pem) = ca {
        builder = builder.tls_certs_only([Certificate::from_pem(&pem).map_err(failed)?]);
    }
    builder.build().map_err(failed)
}

async fn fetch(client: Client, asked: Asked) -> Result<Answered, Failure> {
    let mut request = client.request(asked.method()?, &asked.url).timeout(asked.deadline());
    if let Some((name, key)) = asked.key() {
        request = request.header(name, key);
    }
    if asked.body_bytes > 0 {
        request = request.body(vec![0; asked.body_bytes]);
    }
    let answer = request.send().await?;
    Ok(Answered { status: answer.status().as_u16(), bytes: answer.bytes().await?.len() })
}

/// The host whose requests are tried again.
const HOST: &str = "api.test";

/// The release that the workspace builds with.
const VERSION: &str = "0.13.5";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_it_names_is_the_one_it_is_built_with() {
        let lock = include_str!("../../../Cargo.lock");
        assert!(lock.contains(&format!("name = \"reqwest\"\nversion = \"{VERSION}\"")));
    }
}
