//! Real labs for a comparison.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::{
    Labs,
    lab::{Certificates, Lab, LabError, Place, Site, Traffic},
    plan::Run,
};
use crate::{
    lab::{self, LabOptions},
    topology::{self, TopologyError},
};

/// Builds labs of network namespaces.
#[derive(Debug)]
pub(crate) struct RealLabs {
    /// Folder of recorded traces.
    pub(crate) traces: PathBuf,
}

impl Labs for RealLabs {
    fn build(&self, run: &Run, stop: &AtomicBool) -> Result<Box<dyn Lab>, LabError> {
        let options = LabOptions { seed: run.seed, with_origin: false, traces: self.traces.clone() };
        for _ in 0..TRIES {
            match lab::Lab::start(&run.cell.chosen.scenario, &options) {
                Ok(lab) => return Ok(Box::new(RealLab { folder: lab.folder(), lab })),
                Err(lab::LabError::Topology(TopologyError::AllTaken)) if !stop.load(Ordering::Relaxed) => {
                    thread::sleep(PAUSE);
                }
                Err(error) => return Err(LabError::of(error)),
            }
        }
        Err(LabError("others have all labs of this machine".to_owned()))
    }
}

struct RealLab {
    lab: lab::Lab,
    folder: PathBuf,
}

impl Lab for RealLab {
    fn command(&self, place: Place, program: &Path) -> Result<Command, LabError> {
        let place = match place {
            Place::Backend => topology::Place::Backend,
            Place::Client => topology::Place::Client,
            Place::Server => topology::Place::Server,
        };
        self.lab.command(place, program).map_err(LabError::of)
    }

    fn sites(&self) -> Vec<Site> {
        let sites = self.lab.plan().sites.iter();
        sites.map(|site| Site { addresses: site.addresses().collect(), backend: site.backend.into() }).collect()
    }

    fn port(&self) -> u16 {
        443
    }

    fn lead(&self, site: usize, port: u16) -> Result<(), LabError> {
        self.lab.lead(site, port).map_err(LabError::of)
    }

    fn folder(&self) -> &Path {
        &self.folder
    }

    fn certificates(&self) -> Certificates {
        let authority = self.lab.authority();
        Certificates {
            ca: authority.ca_file.clone(),
            cert: authority.cert_file.clone(),
            key: authority.key_file.clone(),
        }
    }

    fn begin(&mut self) -> Result<Instant, LabError> {
        self.lab.begin().map_err(LabError::of)
    }

    fn finish(&mut self) -> Traffic {
        let report = self.lab.report();
        let bytes = report.links.iter().map(|link| link.down.counts.offered_bytes + link.up.counts.offered_bytes).sum();
        Traffic { bytes, void: report.void }
    }
}

/// How often a run asks for a lab while others on this machine have all of them. 10 min in all: the longest run is nat-short's.
const TRIES: u32 = 600;

/// Pause before it asks again.
const PAUSE: Duration = Duration::from_secs(1);
