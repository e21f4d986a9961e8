//! `ropeway ticket`: issues a ticket with the development issuer of the data folder.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ropeway_core::session::device_id;
use ropeway_gateway::tickets::DeviceRule;
use serde_json::json;

use crate::args::TicketArgs;
use crate::data_dir::{self, Access, DataDir, DataDirError, DeviceKey, unix_seconds};
use crate::error::CommandError;
use crate::output::Output;

/// Runs the command.
pub(crate) fn run(args: &TicketArgs, data: &DataDir, output: Output) -> Result<(), CommandError> {
    let client = data.client()?;
    if client.ticket.is_none() {
        let message = "the gateway's configuration names other ticket issuers, and this one's tickets would be refused; \
                       ask those, or remove `[[tickets.key]]`";
        return Err(CommandError::Usage(message.to_owned()));
    }
    let issuer = data.issuer()?;
    let (key, key_path) = device_key(args, data, &client.device_key)?;
    let app = args.app.as_deref().unwrap_or(&client.app);
    let now = unix_seconds(SystemTime::now());
    let user = args.user.as_str();
    let rule = args.device.as_ref().map_or(DeviceRule::Key, |device| DeviceRule::from_claim(Some(device.to_string())));
    let device = rule.claim().map_or_else(|| device_id(&key.public_key()), str::to_owned);
    let ticket = issuer.issue(user, app, &key.public_key(), &rule, args.ttl, now)?;
    let expires_unix = now.saturating_add(args.ttl.as_secs());

    let mut object = json!({
        "user": user,
        "app": app,
        "device": device,
        "expires_unix": expires_unix,
        "device_key": key_path.display().to_string(),
    });
    match &args.out {
        Some(path) => {
            write(path, &format!("{ticket}\n"))?;
            object["file"] = path.display().to_string().into();
            output.result(&path.display().to_string(), &object)?;
        }
        None => {
            object["ticket"] = ticket.as_str().into();
            output.result(&ticket, &object)?;
        }
    }
    let key = key_path.display();
    output.note(&match rule {
        DeviceRule::Any => format!("for user {user} of app {app}, on any device with the key {key}"),
        DeviceRule::Key => format!("for user {user} of app {app}, on device {device} with the key {key}"),
        DeviceRule::Named(_) => {
            format!("for user {user} of app {app}, on a device with the key {key} that is run with --device {device}")
        }
    });
    Ok(())
}

/// Gives the key that the ticket is bound to, and its file.
fn device_key(args: &TicketArgs, data: &DataDir, development: &Path) -> Result<(DeviceKey, PathBuf), CommandError> {
    let path = match &args.device_key {
        None => development.to_owned(),
        Some(path) if path.as_os_str() == "generate" => return generate(args, data),
        Some(path) => path.clone(),
    };
    Ok((DeviceKey::read(&path)?, path))
}

/// Makes a new device key: beside the ticket, or in the data folder.
fn generate(args: &TicketArgs, data: &DataDir) -> Result<(DeviceKey, PathBuf), CommandError> {
    let key = DeviceKey::generate()?;
    let path = match &args.out {
        Some(ticket) => {
            let mut name = ticket.file_name().unwrap_or_default().to_owned();
            name.push(".key");
            ticket.with_file_name(name)
        }
        None => {
            let folder = data.root().join(DEVICES);
            data_dir::make_folder(&folder)?;
            let id: String = key.public_key().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            folder.join(format!("{id}.key"))
        }
    };
    write(&path, &key.to_pem())?;
    Ok((key, path))
}

fn write(path: &Path, text: &str) -> Result<(), CommandError> {
    data_dir::write(path, Access::Secret, text).map_err(|error| match error {
        DataDirError::Io { path, source, .. } => CommandError::Write { path, source },
        DataDirError::Damaged { .. }
        | DataDirError::InUse { .. }
        | DataDirError::Missing { .. }
        | DataDirError::NoRandom => error.into(),
    })
}

/// Folder of the device keys made without a place of their own.
const DEVICES: &str = "devices";
