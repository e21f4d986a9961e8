//! `ropeway config`: a commented sample, and a check of a file.

use ropeway_gateway::check_files;
use ropeway_gateway::config::{Config, sample};
use serde_json::json;

use crate::args::ConfigCommand;
use crate::data_dir::check_admin_token;
use crate::error::CommandError;
use crate::output::Output;

/// Runs the command.
pub(crate) fn run(command: &ConfigCommand, output: Output) -> Result<(), CommandError> {
    match command {
        ConfigCommand::Check { file } => {
            let config = Config::load(file)?;
            check_admin_token(&config.admin_token_path())?;
            check_files(&config)?;
            let changed = config.changed_keys(&Config::default());
            let keys = if changed.is_empty() { "nothing but defaults".to_owned() } else { changed.join(", ") };
            let text = format!("{} is good; it sets {keys}", file.display());
            output.result(&text, &json!({ "file": file.display().to_string(), "good": true, "sets": changed }))
        }
        ConfigCommand::Sample if output.is_json() => output.result("", &json!({ "sample": sample() })),
        ConfigCommand::Sample => output.bytes(sample().as_bytes()),
    }
}
