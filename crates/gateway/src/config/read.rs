//! Takes values out of a parsed file and notes what is wrong with it, and where.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::model::Config;
use super::nearest::nearest;
use super::section::{Key, Rule, Setting, Shape, joined};

/// A value of the file and its place.
pub(super) type Node<'a> = Spanned<DeValue<'a>>;

/// Something wrong with the file.
#[derive(Debug)]
pub(super) struct Problem {
    /// Bytes before it in the file.
    pub(super) offset: usize,
    pub(super) message: String,
    /// What to do.
    pub(super) hint: String,
}

/// Reads on after a problem, so that all are known and the first in the file can be told.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// The tables entered, and the key being read.
    path: Vec<&'static str>,
    /// The table entered, in its brackets.
    header: String,
    /// The default of the key being read, as TOML.
    example: String,
    pub(super) problems: Vec<Problem>,
}

impl Reader {
    /// Opens a section: refuses keys that it does not have.
    pub(super) fn table<'n, 'a, T: Setting>(
        &mut self,
        node: &'n Node<'a>,
        keys: fn() -> Vec<Key>,
    ) -> Option<&'n DeTable<'a>> {
        let DeValue::Table(table) = node.get_ref() else {
            self.refuse::<T>(node);
            return None;
        };
        let known = keys();
        for (key, _) in table.iter().filter(|(key, _)| known.iter().all(|known| known.name != key.get_ref())) {
            let place = if self.header.is_empty() { String::new() } else { format!(" in `{}`", self.header) };
            let message = format!("unknown key `{}`{place}", printable(key.get_ref()));
            let hint = self.hint_for(key.get_ref(), &known);
            self.problems.push(Problem { offset: key.span().start, message, hint });
        }
        Some(table)
    }

    /// Reads a key into its place, which holds the default; a missing key or a refused value leaves it there.
    pub(super) fn field<T: Setting>(&mut self, table: &DeTable<'_>, key: &'static str, rule: &Rule<T>, place: &mut T) {
        let Some(node) = table.get(key) else { return };
        self.path.push(key);
        let header = match T::shape() {
            Shape::Table(_) => format!("[{}]", self.path.join(".")),
            Shape::Tables(_) => format!("[[{}]]", self.path.join(".")),
            Shape::Value => self.header.clone(),
        };
        let outer = std::mem::replace(&mut self.header, header);
        self.example = place.write();
        if let Some(value) = T::read(node, self) {
            match &rule.allowed {
                Some(allowed) if !(rule.holds)(&value) => {
                    self.note(node, format!("`{key}` must be {allowed}, not {}", printable(&value.write())));
                }
                Some(_) | None => *place = value,
            }
        }
        self.header = outer;
        self.path.pop();
    }

    /// Notes a value of the wrong type.
    pub(super) fn refuse<T: Setting>(&mut self, node: &Node<'_>) -> Option<T> {
        let key = self.path.last().copied().unwrap_or_default();
        let found = match node.get_ref() {
            DeValue::String(text) => format!("\"{}\"", printable(text)),
            DeValue::Integer(number) => printable(&number.to_string()),
            DeValue::Float(number) => printable(&number.to_string()),
            DeValue::Boolean(truth) => truth.to_string(),
            DeValue::Datetime(_) => "a date".to_owned(),
            DeValue::Array(_) => "a list".to_owned(),
            DeValue::Table(_) => "a table".to_owned(),
        };
        let message = format!("`{key}` must be {}, not {found}", T::EXPECTED);
        match T::shape() {
            Shape::Table(_) => self.note_with(node, message, format!("start it with `{}`", self.header)),
            Shape::Tables(_) => {
                self.note_with(node, message, format!("start each of its tables with `{}`", self.header))
            }
            Shape::Value => self.note(node, message),
        }
        None
    }

    /// Notes a value that its type refuses for a reason of its own.
    pub(super) fn refuse_because(&mut self, node: &Node<'_>, reason: &str, hint: &str) {
        let key = self.path.last().copied().unwrap_or_default();
        self.note_with(node, format!("`{key}`: {reason}"), hint.to_owned());
    }

    fn note(&mut self, node: &Node<'_>, message: String) {
        let key = self.path.last().copied().unwrap_or_default();
        let hint =
            if self.example.is_empty() { String::new() } else { format!("for example `{key} = {}`", self.example) };
        self.note_with(node, message, hint);
    }

    fn note_with(&mut self, node: &Node<'_>, message: String, hint: String) {
        self.problems.push(Problem { offset: node.span().start, message, hint });
    }

    /// Says what an unknown key may have meant: a key of this section, or of another, or what there is.
    fn hint_for(&self, key: &str, known: &[Key]) -> String {
        if let Some(meant) = nearest(key, known.iter().map(|known| known.name)) {
            return format!("did you mean `{meant}`?");
        }
        let mut homes = Vec::new();
        homes_of(key, "", &Config::keys(), &mut homes);
        if let Some(home) = homes.first() {
            return format!("`{key}` belongs to `{home}`");
        }
        let names: Vec<_> = known.iter().map(|known| known.name).collect();
        format!("known here: {}", names.join(", "))
    }
}

/// Collects the headers of the sections that have such a key.
fn homes_of(name: &str, header: &str, keys: &[Key], homes: &mut Vec<String>) {
    for key in keys {
        if key.name == name {
            homes.push(if header.is_empty() { format!("[{name}]") } else { header.to_owned() });
        }
        let path = joined(header.trim_matches(['[', ']']), key.name);
        match key.shape {
            Shape::Table(inner) => homes_of(name, &format!("[{path}]"), &inner(), homes),
            Shape::Tables(inner) => homes_of(name, &format!("[[{path}]]"), &inner(), homes),
            Shape::Value => {}
        }
    }
}

/// Cuts and cleans what someone wrote, for a message of one line.
pub(super) fn printable(text: &str) -> String {
    let clean: String =
        text.chars().take(QUOTED_CHARS_MAX).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().count() > QUOTED_CHARS_MAX { clean + "…" } else { clean }
}

/// Characters of the file that a message repeats.
const QUOTED_CHARS_MAX: usize = 80;
