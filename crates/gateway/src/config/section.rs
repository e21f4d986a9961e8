//! How a section of the file is declared: keys, their documentation, defaults and allowed values, in one place.

use std::borrow::Borrow;

use super::read::{Node, Reader};

/// A type that a key of the file can have.
pub(super) trait Setting: PartialEq + Sized {
    /// What to write for it, as the end of "must be …".
    const EXPECTED: &'static str;

    /// Takes the value out of the file; `None` when a problem was noted instead.
    fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self>;

    /// Writes the value as TOML.
    fn write(&self) -> String;

    /// Whether the key is a plain value or opens a table.
    fn shape() -> Shape {
        Shape::Value
    }

    /// Names the keys whose values differ between two configurations.
    fn changes(&self, other: &Self, path: &str, changed: &mut Vec<String>) {
        if self != other {
            changed.push(path.to_owned());
        }
    }
}

/// The place a key takes in the file.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    /// `[name]`, holding these keys.
    Table(fn() -> Vec<Key>),
    /// `[[name]]`, each holding these keys.
    Tables(fn() -> Vec<Key>),
    /// `name = …`.
    Value,
}

/// One key of a section, for refusing unknown ones and for the sample.
pub(super) struct Key {
    pub(super) name: &'static str,
    /// The lines of the doc comment, each with its leading space.
    pub(super) doc: &'static [&'static str],
    /// The default as TOML, or an example where there is none.
    pub(super) value: String,
    /// The allowed values in words, where not every value of the type is.
    pub(super) allowed: Option<String>,
    pub(super) shape: Shape,
}

/// Which values of the type a key allows.
pub(super) struct Rule<T> {
    /// In words, as the end of "must be …"; `None` when every value is allowed.
    pub(super) allowed: Option<String>,
    pub(super) holds: Box<dyn Fn(&T) -> bool>,
}

/// Allows every value of the type.
pub(super) fn any<T>() -> Rule<T> {
    Rule { allowed: None, holds: Box::new(|_| true) }
}

/// Allows the values from the first to the second, both included.
pub(super) fn between<T: PartialOrd + Setting + 'static>(least: T, most: T) -> Rule<T> {
    let allowed = format!("from {} to {}", least.write(), most.write());
    Rule { allowed: Some(allowed), holds: Box::new(move |value| (&least..=&most).contains(&value)) }
}

/// Allows the values that pass the test, which the words describe.
pub(super) fn such<T: Borrow<B>, B: ?Sized + 'static>(allowed: &str, test: fn(&B) -> bool) -> Rule<T> {
    Rule { allowed: Some(allowed.to_owned()), holds: Box::new(move |value| test(value.borrow())) }
}

/// Gives the dotted path of a key in a table; the file itself has an empty one.
pub(super) fn joined(table: &str, key: &str) -> String {
    if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") }
}

/// Declares a section: a struct whose fields are the keys of a table.
///
/// `key: Type [rule] = default, "example";` where the rule and the example may be left out, and `key("name")` names the
/// key where it differs from the field. The doc comments are those of the fields and those of the sample.
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        pub struct $section:ident {
            $(
                $(#[doc = $doc:literal])+
                pub $field:ident $(($key:literal))? : $type:ty $([$rule:expr])? = $default:expr $(, $example:literal)?;
            )+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq)]
        pub struct $section {
            $(
                $(#[doc = $doc])+
                #[doc = concat!("\n\nDefault: `", stringify!($default), "`.")]
                $(#[doc = concat!(" Allowed: `", stringify!($rule), "`.")])?
                pub $field: $type,
            )+
        }

        impl Default for $section {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        impl $section {
            pub(super) fn keys() -> Vec<Key> {
                let defaults = Self::default();
                vec![$(Key {
                    name: section!(@first $($key,)? stringify!($field)),
                    doc: &[$($doc),+],
                    value: section!(@first $(format!("{:?}", $example),)? defaults.$field.write()),
                    allowed: { let rule: Rule<$type> = section!(@first $($rule,)? any()); rule.allowed },
                    shape: <$type as Setting>::shape(),
                },)+]
            }
        }

        impl Setting for $section {
            const EXPECTED: &'static str = "a table";

            fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
                let table = reader.table::<Self>(node, Self::keys)?;
                let mut section = Self::default();
                $(
                    let rule: Rule<$type> = section!(@first $($rule,)? any());
                    let key = section!(@first $($key,)? stringify!($field));
                    reader.field(table, key, &rule, &mut section.$field);
                )+
                Some(section)
            }

            fn write(&self) -> String {
                String::new()
            }

            fn shape() -> Shape {
                Shape::Table(Self::keys)
            }

            fn changes(&self, other: &Self, path: &str, changed: &mut Vec<String>) {
                $(
                    let key = section!(@first $($key,)? stringify!($field));
                    self.$field.changes(&other.$field, &joined(path, key), changed);
                )+
            }
        }
    };
    (@first $first:expr $(, $rest:expr)?) => { $first };
}

pub(super) use section;
