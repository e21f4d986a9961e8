//! The commands, one file each.

pub(crate) mod accuracy;
pub(crate) mod compare;
pub(crate) mod list;
pub(crate) mod run;
pub(crate) mod set;
pub(crate) mod shell;
pub(crate) mod simulate;
