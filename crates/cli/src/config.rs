//! `ropeway config`: a commented sample, and a check of a file.

use std::path::Path;
use std::time::SystemTime;

use ropeway_gateway::check_files;
use ropeway_gateway::config::{Config, sample};
use serde_json::json;

use crate::args::ConfigCommand;
use crate::data_dir::{DataDir, DataDirError, check_admin_token};
use crate::error::CommandError;
use crate::output::Output;
use crate::up::certified_names;

/// Runs the command.
pub(crate) fn run(command: &ConfigCommand, chosen: Option<&Path>, output: Output) -> Result<(), CommandError> {
    match command {
        ConfigCommand::Check { file } => {
            let config = Config::load(file)?;
            let used = in_folder(config.clone(), chosen);
            check_made(&used)?;
            check_files(&used)?;
            let changed = config.changed_keys(&Config::default());
            let keys = if changed.is_empty() { "nothing but defaults".to_owned() } else { changed.join(", ") };
            let text = format!("{} is good; it sets {keys}", file.display());
            output.result(&text, &json!({ "file": file.display().to_string(), "good": true, "sets": changed }))
        }
        ConfigCommand::Sample if output.is_json() => output.result("", &json!({ "sample": sample() })),
        ConfigCommand::Sample => output.bytes(sample().as_bytes()),
    }
}

/// Puts the data folder that the command line chose in the place of the file's, as a start would.
fn in_folder(mut config: Config, chosen: Option<&Path>) -> Config {
    if let Some(folder) = chosen {
        folder.clone_into(&mut config.gateway.data_dir);
    }
    config
}

/// Checks what earlier starts have left in the data folder, as far as the next would use it.
fn check_made(config: &Config) -> Result<(), DataDirError> {
    let data = DataDir::new(Some(&config.gateway.data_dir));
    if config.tls.cert.is_none() {
        data.check_certificate(&certified_names(config), SystemTime::now())?;
    }
    check_admin_token(&config.admin_token_path())?;
    if config.tickets.keys.is_empty() { data.check_development() } else { Ok(()) }
}
