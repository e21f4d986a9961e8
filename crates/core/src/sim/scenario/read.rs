//! Takes values out of a parsed file, with their place where they are wrong.

use std::{ops::RangeInclusive, time::Duration};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::error::{Place, ScenarioError, hint};

/// A file, to find the line of a value.
#[derive(Clone, Copy)]
pub(super) struct File<'t> {
    pub(super) name: &'t str,
    pub(super) text: &'t str,
}

/// A table of the file whose keys are known.
pub(super) struct Table<'n, 't> {
    pub(super) file: File<'t>,
    node: &'n DeTable<'t>,
    offset: usize,
    /// Its dotted name, for messages; empty for the file itself.
    pub(super) header: String,
}

type Node<'t> = Spanned<DeValue<'t>>;

impl File<'_> {
    pub(super) fn place(&self, offset: usize) -> Place {
        let before = self.text.as_bytes().iter().take(offset);
        Place { file: format!("{}.toml", self.name), line: before.filter(|byte| **byte == b'\n').count() + 1 }
    }
}

impl<'n, 't> Table<'n, 't> {
    /// Opens a table and refuses keys that are not among `keys`.
    pub(super) fn open(
        file: File<'t>,
        node: &'n Spanned<DeValue<'t>>,
        header: String,
        keys: &[&str],
    ) -> Result<Self, ScenarioError> {
        let DeValue::Table(table) = node.get_ref() else {
            return Err(ScenarioError::NotAllowed {
                place: file.place(node.span().start),
                key: header,
                allowed: "a table".to_owned(),
                found: written(node.get_ref()),
            });
        };
        Self::of(file, table, node.span().start, header, keys)
    }

    /// Opens a table whose type is known already.
    pub(super) fn of(
        file: File<'t>,
        node: &'n DeTable<'t>,
        offset: usize,
        header: String,
        keys: &[&str],
    ) -> Result<Self, ScenarioError> {
        let mut unknown = node.keys().filter(|key| !keys.contains(&key.get_ref().as_ref()));
        match unknown.next() {
            None => Ok(Self { file, node, offset, header }),
            Some(key) => Err(ScenarioError::UnknownKey {
                place: file.place(key.span().start),
                key: clip(key.get_ref()),
                table: named(&header),
                hint: hint(key.get_ref(), keys.iter().copied()),
            }),
        }
    }

    /// Refuses keys that are not among `keys`, which are fewer than when it was opened.
    pub(super) fn narrowed(&self, keys: &[&str]) -> Result<Self, ScenarioError> {
        Self::of(self.file, self.node, self.offset, self.header.clone(), keys)
    }

    pub(super) fn node(&self, key: &str) -> Option<&'n Node<'t>> {
        self.node.get(key)
    }

    /// Where a key's value stands, or the table if there is none.
    pub(super) fn place(&self, key: &str) -> Place {
        self.file.place(self.node(key).map_or(self.offset, |node| node.span().start))
    }

    pub(super) fn missing(&self, key: &'static str) -> ScenarioError {
        ScenarioError::Missing { place: self.file.place(self.offset), key, table: named(&self.header) }
    }

    /// Refuses the value of a key.
    pub(super) fn refuse(&self, key: &str, allowed: impl Into<String>) -> ScenarioError {
        let found = self.node(key).map_or_else(String::new, |node| written(node.get_ref()));
        ScenarioError::NotAllowed { place: self.place(key), key: key.to_owned(), allowed: allowed.into(), found }
    }

    /// Reads a number within a range.
    pub(super) fn number(&self, key: &str, range: RangeInclusive<f64>) -> Result<Option<f64>, ScenarioError> {
        let Some(node) = self.node(key) else { return Ok(None) };
        match as_number(node.get_ref()).filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(self.refuse(key, format!("a number from {} to {}", range.start(), range.end()))),
        }
    }

    /// Reads a whole number within a range.
    pub(super) fn count(&self, key: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, ScenarioError> {
        let Some(node) = self.node(key) else { return Ok(None) };
        match as_count(node.get_ref()).filter(|count| range.contains(count)) {
            Some(count) => Ok(Some(count)),
            None => Err(self.refuse(key, format!("a whole number from {} to {}", range.start(), range.end()))),
        }
    }

    /// Reads a share, 0 to 1.
    pub(super) fn share(&self, key: &str) -> Result<Option<f64>, ScenarioError> {
        self.number(key, 0.0..=1.0)
    }

    /// Reads a time in seconds.
    pub(super) fn seconds(&self, key: &str, range: RangeInclusive<f64>) -> Result<Option<Duration>, ScenarioError> {
        Ok(self.number(key, range)?.map(Duration::from_secs_f64))
    }

    /// Reads a time in milliseconds.
    pub(super) fn millis(&self, key: &str, range: RangeInclusive<f64>) -> Result<Option<Duration>, ScenarioError> {
        Ok(self.number(key, range)?.map(|ms| Duration::from_secs_f64(ms / 1e3)))
    }

    /// Reads a text that is not empty.
    pub(super) fn text(&self, key: &str) -> Result<Option<String>, ScenarioError> {
        let Some(node) = self.node(key) else { return Ok(None) };
        match node.get_ref().as_str().map(str::trim).filter(|text| !text.is_empty()) {
            Some(text) => Ok(Some(text.to_owned())),
            None => Err(self.refuse(key, "a text in quotes")),
        }
    }

    /// Reads one of several words.
    pub(super) fn word<T: Copy>(&self, key: &str, words: &[(&str, T)]) -> Result<Option<T>, ScenarioError> {
        let Some(node) = self.node(key) else { return Ok(None) };
        let found = words.iter().find(|(word, _)| node.get_ref().as_str() == Some(word));
        match found {
            Some((_, meant)) => Ok(Some(*meant)),
            None => {
                let known: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
                Err(self.refuse(key, format!("one of {}", known.join(", "))))
            }
        }
    }

    /// Reads a list of numbers, each within a range; there must be one to `most`.
    pub(super) fn numbers(
        &self,
        key: &str,
        range: RangeInclusive<f64>,
        most: usize,
    ) -> Result<Option<Vec<f64>>, ScenarioError> {
        let Some(node) = self.node(key) else { return Ok(None) };
        let refused =
            || self.refuse(key, format!("a list of 1 to {most} numbers from {} to {}", range.start(), range.end()));
        let DeValue::Array(items) = node.get_ref() else { return Err(refused()) };
        let numbers: Option<Vec<f64>> =
            items.iter().map(|item| as_number(item.get_ref()).filter(|number| range.contains(number))).collect();
        numbers.filter(|numbers| (1..=most).contains(&numbers.len())).map(Some).ok_or_else(refused)
    }

    /// Reads a list of tables, at most `most`.
    pub(super) fn tables(&self, key: &str, most: usize) -> Result<&'n [Node<'t>], ScenarioError> {
        let Some(node) = self.node(key) else { return Ok(&[]) };
        match node.get_ref() {
            DeValue::Array(items) if items.len() <= most => Ok(items),
            DeValue::Array(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Float(_)
            | DeValue::Integer(_)
            | DeValue::String(_)
            | DeValue::Table(_) => Err(self.refuse(key, format!("at most {most} tables, each under [[{key}]]"))),
        }
    }

    /// Reads a table of tables, in the order in which they stand in the file; there must be one to `most`.
    pub(super) fn named_tables(&self, key: &str, most: usize) -> Result<Vec<(&'n str, &'n Node<'t>)>, ScenarioError> {
        let Some(node) = self.node(key) else { return Ok(Vec::new()) };
        let DeValue::Table(table) = node.get_ref() else {
            return Err(self.refuse(key, format!("a table, written as [{key}.NAME]")));
        };
        let mut named: Vec<_> = table.iter().collect();
        named.sort_by_key(|(key, _)| key.span().start);
        if named.len() > most {
            return Err(self.refuse(key, format!("at most {most} tables")));
        }
        Ok(named.into_iter().map(|(key, node)| (key.get_ref().as_ref(), node)).collect())
    }

    /// Finds the key that is there of several of which there must be exactly one.
    pub(super) fn one_of<'k>(&self, choices: &[&'k str]) -> Result<&'k str, ScenarioError> {
        let found: Vec<&str> = choices.iter().copied().filter(|key| self.node(key).is_some()).collect();
        match found[..] {
            [one] => Ok(one),
            _ => Err(ScenarioError::Choice {
                place: self.file.place(self.offset),
                table: named(&self.header),
                choices: choices.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", "),
                found: if found.is_empty() { "none".to_owned() } else { found.join(", ") },
            }),
        }
    }
}

fn as_number(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).ok().map(|number| number as f64)
        }
        DeValue::Float(number) => number.as_str().parse().ok(),
        DeValue::Array(_) | DeValue::Boolean(_) | DeValue::Datetime(_) | DeValue::String(_) | DeValue::Table(_) => None,
    }
}

fn as_count(value: &DeValue<'_>) -> Option<u64> {
    value.as_integer().and_then(|number| u64::from_str_radix(number.as_str(), number.radix()).ok())
}

fn written(value: &DeValue<'_>) -> String {
    match value {
        DeValue::Array(items) if items.len() > LIST_ITEMS_SHOWN => format!("a list of {}", items.len()),
        DeValue::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| written(item.get_ref())).collect();
            format!("[{}]", items.join(", "))
        }
        DeValue::Boolean(truth) => truth.to_string(),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Float(number) => clip(number.as_str()),
        DeValue::Integer(number) => clip(&number.to_string()),
        DeValue::String(text) => format!("\"{}\"", clip(text)),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

fn named(header: &str) -> String {
    if header.is_empty() { "the file".to_owned() } else { format!("`{header}`") }
}

/// Cuts and cleans what someone wrote, for a message of one line.
pub(super) fn clip(text: &str) -> String {
    text.chars().take(QUOTED_CHARS_MAX).map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

/// Characters of the file that a message repeats.
const QUOTED_CHARS_MAX: usize = 60;

/// Items of a list that a message repeats.
const LIST_ITEMS_SHOWN: usize = 8;
