//! The data folder: `up` keeps there what it makes, and the other commands find there what they need.

mod authority;
mod client_file;
mod error;
mod files;
mod keys;
mod lock;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ropeway_gateway::tickets::{DeviceRule, TicketIssuer};

pub(crate) use self::client_file::{AccessPoint, ClientFile, PinnedKey, PipeKeyEntry};
pub(crate) use self::error::DataDirError;
pub(crate) use self::files::{Access, make_folder, write};
pub(crate) use self::keys::{DeviceKey, check_admin_token, unix_seconds};
pub(crate) use self::lock::Lock;

/// A data folder.
#[derive(Clone, Debug)]
pub(crate) struct DataDir {
    root: PathBuf,
}

impl DataDir {
    /// Names the folder that the command line chose, or the usual one. Touches nothing.
    pub(crate) fn new(chosen: Option<&Path>) -> Self {
        Self { root: chosen.unwrap_or(Path::new(DEFAULT)).to_owned() }
    }

    /// Gives the folder.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Says whether this is where commands look when they are not told.
    pub(crate) fn is_default(&self) -> bool {
        self.root.strip_prefix(".").unwrap_or(&self.root) == Path::new(DEFAULT)
    }

    /// Makes the folder if needed and takes the right to change it.
    pub(crate) fn lock(&self) -> Result<Lock, DataDirError> {
        make_folder(&self.root)?;
        Lock::take(&self.root)
    }

    /// Gives the certificate of this folder's own authority.
    pub(crate) fn ca_path(&self) -> PathBuf {
        self.root.join(CA_CERT)
    }

    /// Makes the authority, and a gateway certificate for these names unless the present one still serves.
    pub(crate) fn certificate(&self, _lock: &Lock, names: &[String], now: SystemTime) -> Result<(), DataDirError> {
        authority::provide(self, names, now)
    }

    /// Says what is wrong with what this folder has of the authority and the gateway's certificate, and changes nothing.
    pub(crate) fn check_certificate(&self, names: &[String], now: SystemTime) -> Result<(), DataDirError> {
        authority::check(self, names, now)
    }

    /// Says what is wrong with what this folder has of the development issuer and device, and changes nothing.
    pub(crate) fn check_development(&self) -> Result<(), DataDirError> {
        keys::check_development(&self.root.join(ISSUER_KEY), &self.root.join(DEVICE_KEY))
    }

    /// Makes the admin token unless it is there.
    pub(crate) fn admin_token(&self, _lock: &Lock, path: &Path) -> Result<(), DataDirError> {
        keys::admin_token(path).map(drop)
    }

    /// Makes the key of the development issuer unless it is there.
    pub(crate) fn make_issuer(&self, _lock: &Lock) -> Result<TicketIssuer, DataDirError> {
        keys::issuer(&self.root.join(ISSUER_KEY), true)
    }

    /// Reads the key of the development issuer.
    pub(crate) fn issuer(&self) -> Result<TicketIssuer, DataDirError> {
        keys::issuer(&self.root.join(ISSUER_KEY), false)
    }

    /// Makes the development device's key unless it is there, and its ticket unless the present one still serves.
    pub(crate) fn development_ticket(
        &self,
        _lock: &Lock,
        issuer: &TicketIssuer,
        app: &str,
        now: SystemTime,
    ) -> Result<(), DataDirError> {
        let device = keys::make_device_key(&self.root.join(DEVICE_KEY))?;
        keys::development_ticket(&self.root.join(TICKET), issuer, app, &device, now)
    }

    /// Reads what `up` left for the other commands.
    pub(crate) fn client(&self) -> Result<ClientFile, DataDirError> {
        ClientFile::read(&self.root)
    }

    /// Names the file of what `up` leaves for the other commands.
    pub(crate) fn client_path(&self) -> PathBuf {
        self.root.join(client_file::CLIENT_FILE)
    }

    /// Says what is wrong with what `up` left for the other commands.
    pub(crate) fn client_damaged(&self, reason: String) -> DataDirError {
        client_file::damaged(&self.root, reason)
    }

    /// Leaves for the other commands what they need.
    pub(crate) fn leave_client(&self, _lock: &Lock, client: &ClientFile) -> Result<(), DataDirError> {
        client.write(&self.root)
    }
}

/// The user of the development ticket.
pub(crate) const DEVELOPMENT_USER: &str = "dev";

/// What devices with the development ticket may call themselves: several commands may run with it at once.
pub(crate) const DEVELOPMENT_DEVICE: DeviceRule = DeviceRule::Any;

/// How long a ticket is good: 30 days, so that nobody needs a new one in the middle of trying something out.
pub(crate) const TICKET_TTL: Duration = Duration::from_hours(30 * 24);

/// The folder when none is chosen.
const DEFAULT: &str = "ropeway-data";

const CA_CERT: &str = "ca.pem";
const CA_KEY: &str = "ca.key";
const GATEWAY_CERT: &str = "gateway.pem";
const GATEWAY_KEY: &str = "gateway.key";
const ISSUER_KEY: &str = "issuer.key";

/// The key of the development device.
pub(crate) const DEVICE_KEY: &str = "device.key";

/// The ticket of the development device.
pub(crate) const TICKET: &str = "ticket";
