//! Where the links of a session led, and how they ended.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use ropeway_core::{Time, connect::Candidate};

use crate::shared::lock;

/// The newest links of one session, by their numbers; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places(Arc<Mutex<VecDeque<(u64, Place)>>>);

/// One link.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) candidate: Candidate,
    /// When it was greeted.
    pub(crate) began: Time,
    /// When and why it ended.
    pub(crate) ended: Option<(Time, Arc<str>)>,
}

impl Places {
    /// Notes where a link leads.
    pub(crate) fn begin(&self, link: u64, candidate: Candidate, now: Time) {
        let mut places = lock(&self.0);
        if places.len() >= PLACES_MAX {
            places.pop_front();
        }
        places.push_back((link, Place { candidate, began: now, ended: None }));
    }

    /// Notes why a link ended. The first reason stands.
    pub(crate) fn end(&self, link: u64, reason: &str, now: Time) {
        let mut places = lock(&self.0);
        if let Some((_, place)) = places.iter_mut().find(|(known, _)| *known == link) {
            place.ended.get_or_insert_with(|| (now, reason.into()));
        }
    }

    /// Returns what is known of a link.
    pub(crate) fn of(&self, link: u64) -> Option<Place> {
        lock(&self.0).iter().find(|(known, _)| *known == link).map(|(_, place)| place.clone())
    }
}

/// Links that are remembered of one session: as many as hand-overs of one request.
const PLACES_MAX: usize = 16;
