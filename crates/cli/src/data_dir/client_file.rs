//! What `up` leaves in the data folder so that the other commands find the gateway by themselves.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ropeway_core::CarrierKind;
use ropeway_net::pem::looks_like;
use serde::{Deserialize, Serialize};

use super::DataDirError;
use super::files::{self, Access};

/// How to reach the gateway, and as whom. Paths are relative to the data folder, so that it can be moved.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct ClientFile {
    /// The gateway's name.
    pub(crate) gateway: String,
    /// Where it listens.
    pub(crate) access_points: Vec<AccessPoint>,
    /// Certificate of the authority to trust; none where it is the operating system's.
    pub(crate) ca: Option<PathBuf>,
    /// The app of the tickets.
    pub(crate) app: String,
    /// The development device's key.
    pub(crate) device_key: PathBuf,
    /// The development ticket; none where the gateway takes those of other issuers only.
    pub(crate) ticket: Option<PathBuf>,
    /// The admin API.
    pub(crate) admin: SocketAddr,
    /// File of its token.
    pub(crate) admin_token: PathBuf,
    /// The hosts behind the gateway.
    pub(crate) hosts: Vec<String>,
    /// The keys whose signatures under an access list are believed.
    #[serde(default)]
    pub(crate) list_keys: Vec<PinnedKey>,
    /// Keys of the sealed pipe, the one to use first: good until an access list comes.
    #[serde(default)]
    pub(crate) pipe_keys: Vec<PipeKeyEntry>,
}

/// A public key of the sealed pipe.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct PipeKeyEntry {
    /// The key configuration (RFC 9458 section 3.1) in Base64.
    pub(crate) config: String,
    /// Until when it is accepted, Unix time in ms.
    pub(crate) expires_ms: u64,
}

/// A public key and its name.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct PinnedKey {
    /// Its name in what it signed.
    pub(crate) id: String,
    /// The 32 bytes of the Ed25519 key in Base64, as the library takes them.
    pub(crate) public_key: String,
}

impl PipeKeyEntry {
    /// Returns the key configuration, if it is Base64.
    pub(crate) fn bytes(&self) -> Option<Vec<u8>> {
        STANDARD.decode(&self.config).ok()
    }
}

impl PinnedKey {
    /// Returns the key itself, if it is one.
    pub(crate) fn bytes(&self) -> Option<[u8; 32]> {
        STANDARD.decode(&self.public_key).ok()?.try_into().ok()
    }
}

/// An address of the gateway and what is spoken there.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct AccessPoint {
    /// The address.
    pub(crate) address: SocketAddr,
    /// The carriers.
    pub(crate) carriers: Vec<CarrierKind>,
}

impl ClientFile {
    pub(super) fn read(folder: &Path) -> Result<Self, DataDirError> {
        let path = folder.join(CLIENT_FILE);
        let content = files::content(&path)?.ok_or(DataDirError::Missing { path })?;
        let mut client: Self = serde_json::from_slice(&content).map_err(|error| {
            let is_json = !error.is_syntax() && !error.is_eof();
            let told = || format!("this is no JSON, it looks like {}", looks_like(&content));
            damaged(folder, if is_json { error.to_string() } else { told() })
        })?;
        for file in client.files() {
            *file = folder.join(&file);
        }
        Ok(client)
    }

    pub(super) fn write(&self, folder: &Path) -> Result<(), DataDirError> {
        let mut client = self.clone();
        for file in client.files() {
            *file = match (file.strip_prefix(folder), std::path::absolute(&file)) {
                (Ok(inside), _) => inside.to_owned(),
                // The other commands may run in another folder.
                (Err(_), Ok(absolute)) => absolute,
                (Err(_), Err(_)) => continue,
            };
        }
        let text = serde_json::to_string_pretty(&client).expect("a record of texts can be written as JSON");
        files::write(&folder.join(CLIENT_FILE), Access::Secret, &format!("{text}\n"))
    }

    fn files(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let always = [&mut self.device_key, &mut self.admin_token];
        always.into_iter().chain(&mut self.ca).chain(&mut self.ticket)
    }
}

/// Says what is wrong with the file.
pub(super) fn damaged(folder: &Path, reason: String) -> DataDirError {
    let hint = "start `ropeway up` again, which writes it anew";
    DataDirError::Damaged { path: folder.join(CLIENT_FILE), reason, hint }
}

/// The name of the file.
pub(super) const CLIENT_FILE: &str = "client.json";

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn client(folder: &Path) -> ClientFile {
        ClientFile {
            gateway: "localhost".to_owned(),
            access_points: vec![AccessPoint {
                address: "127.0.0.1:7443".parse().expect("an address"),
                carriers: vec![CarrierKind::Tls, CarrierKind::Ws],
            }],
            ca: Some(folder.join("ca.pem")),
            app: "dev".to_owned(),
            device_key: folder.join("device.key"),
            ticket: None,
            admin: "127.0.0.1:7480".parse().expect("an address"),
            admin_token: "/etc/ropeway/admin.token".into(),
            hosts: vec!["api.test".to_owned()],
            list_keys: vec![PinnedKey { id: "list-1".to_owned(), public_key: "AAAA".to_owned() }],
            pipe_keys: vec![PipeKeyEntry { config: "AAE=".to_owned(), expires_ms: 1 }],
        }
    }

    #[test]
    fn reads_back_also_after_the_folder_moved() {
        let folder = tempfile::tempdir().expect("a folder");
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        fs::create_dir(&old).expect("made");
        client(&old).write(&old).expect("written");
        assert_eq!(ClientFile::read(&old).expect("good"), client(&old));
        fs::rename(&old, &new).expect("moved");
        assert_eq!(ClientFile::read(&new).expect("good"), client(&new));
    }

    #[test]
    fn a_missing_or_broken_file_says_what_to_do() {
        let folder = tempfile::tempdir().expect("a folder");
        let missing = ClientFile::read(folder.path()).expect_err("nothing there").to_string();
        let path = folder.path().join("client.json").display().to_string();
        assert_eq!(missing, format!("no {path} there; run `ropeway up` first, or name its folder with --data-dir"));
        fs::write(folder.path().join("client.json"), "{}").expect("written");
        let broken = ClientFile::read(folder.path()).expect_err("nothing in it").to_string();
        assert!(broken.starts_with(&path) && broken.contains("`ropeway up`"), "{broken}");
    }
}
