//! The commented sample of the configuration, written from the declarations of the keys.

use super::model::Config;
use super::reload::is_live;
use super::section::{Key, Shape, joined};

/// Writes a file with every key, its documentation and its default, all commented out.
///
/// Taking away the `#` before a key changes nothing, except where a `[[table]]` is added.
#[must_use]
pub fn sample() -> String {
    let mut text = HEAD.to_owned();
    for key in &Config::keys() {
        write_key(key, "", &mut text);
    }
    text
}

fn write_key(key: &Key, parent: &str, text: &mut String) {
    let path = joined(parent, key.name);
    text.push('\n');
    for line in key.doc {
        text.push_str(&format!("#{line}\n"));
    }
    match key.shape {
        Shape::Table(keys) => {
            write_effect(&path, text);
            text.push_str(&format!("[{path}]\n"));
            write_section(&keys(), &path, text);
        }
        Shape::Tables(keys) => {
            write_effect(&path, text);
            text.push_str(&format!("#[[{path}]]\n"));
            write_section(&keys(), &path, text);
        }
        Shape::Value => {
            if let Some(allowed) = &key.allowed {
                text.push_str(&format!("# Must be {allowed}.\n"));
            }
            text.push_str(&format!("#{} = {}\n", key.name, key.value));
        }
    }
}

/// Writes the plain values first: in TOML, a key after a table's header belongs to that table.
fn write_section(keys: &[Key], path: &str, text: &mut String) {
    let (values, tables): (Vec<_>, Vec<_>) = keys.iter().partition(|key| matches!(key.shape, Shape::Value));
    for key in values.into_iter().chain(tables) {
        write_key(key, path, text);
    }
}

fn write_effect(path: &str, text: &mut String) {
    text.push_str(if is_live(path) { "# Changes take effect at once.\n" } else { "# Changes need a restart.\n" });
}

const HEAD: &str = "\
# Configuration of Ropeway. Every key is optional; shown are the defaults.
# Paths are relative to the folder of this file. Sizes are in bytes; times have a unit: d, h, m, s or ms.
# The file is read again when it changes and on SIGHUP; a file with a mistake is refused and the old one stays.
";
