//! Which cells a command line means: scenarios with their networks, and works.

use std::{path::Path, sync::Arc};

use clap::Args;
use ropeway_core::sim::{Scenario, Work, scenario::ScenarioError};

use crate::{
    catalogue::{Catalogue, CatalogueError},
    live::read_traces,
    results::Missing,
    scoring::Network,
};

/// Which scenarios, and what is done in them.
#[derive(Args, Clone, Debug)]
pub(crate) struct SelectionArgs {
    /// Scenarios, such as "elevator" or "elevator:long"; "NAME:*" is a scenario with all its variants, and "*:*" is everything
    /// [default: all, without variants]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) scenarios: Vec<String>,
    /// Works: get-2k, post-10k, post-keyed, get-200k, burst, cold, before-outage, warm
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "get-2k,post-10k")]
    pub(crate) works: Vec<Work>,
}

/// Why scenarios cannot be chosen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ChooseError {
    /// The file of a scenario cannot be found or read.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// The file of a scenario has a mistake.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
}

/// The chosen scenarios, and why some of them cannot be played here.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    /// Those that can be played.
    pub(crate) scenarios: Vec<Arc<Chosen>>,
    /// Those that cannot, one for each work.
    pub(crate) missing: Vec<Missing>,
}

/// A scenario as it was chosen.
#[derive(Debug)]
pub(crate) struct Chosen {
    /// What is in its file.
    pub(crate) scenario: Scenario,
    /// The text of its file.
    pub(crate) text: String,
    /// What its network is like, but for the chances of a seed.
    pub(crate) network: Network,
}

impl SelectionArgs {
    /// Gives the words of a command line that mean the same.
    pub(crate) fn words(&self) -> Vec<String> {
        let works: Vec<_> = self.works.iter().map(Work::to_string).collect();
        let lists = [("scenarios", self.scenarios.join(",")), ("works", works.join(","))];
        lists.into_iter().filter(|(_, list)| !list.is_empty()).map(|(name, list)| format!("--{name} {list}")).collect()
    }
}

impl Chosen {
    /// Gives the name with the variant, as the command line writes it.
    pub(crate) fn label(&self) -> String {
        match &self.scenario.variant {
            Some(variant) => format!("{}:{variant}", self.scenario.name),
            None => self.scenario.name.clone(),
        }
    }
}

/// Finds the scenarios that are named: `NAME`, `NAME:VARIANT`, or `NAME:*` for a scenario with all its variants, where `NAME` may be
/// `*`. Without names it is all scenarios as they are. `*` leaves the variants out that are scaled for CI.
pub(crate) fn choose(
    catalogue: &Catalogue,
    SelectionArgs { scenarios: names, works }: &SelectionArgs,
    traces: &Path,
) -> Result<Choice, ChooseError> {
    let everything = ["*".to_owned()];
    let mut choice = Choice::default();
    for name in if names.is_empty() { &everything[..] } else { names } {
        let (name, variant) =
            name.split_once(':').map_or((name.as_str(), None), |(name, variant)| (name, Some(variant)));
        let named = if name == "*" { catalogue.names()? } else { vec![name.to_owned()] };
        for name in named {
            let text = catalogue.text(&name)?;
            if variant != Some("*") {
                choice.add(&name, &text, variant, (works, traces))?;
                continue;
            }
            choice.add(&name, &text, None, (works, traces))?;
            for variant in Scenario::variants(&name, &text)? {
                if Scenario::parse(&name, &text, Some(&variant))?.scaled.is_none() {
                    choice.add(&name, &text, Some(&variant), (works, traces))?;
                }
            }
        }
    }
    Ok(choice)
}

impl Choice {
    fn add(
        &mut self,
        name: &str,
        text: &str,
        variant: Option<&str>,
        (works, traces): (&[Work], &Path),
    ) -> Result<(), ScenarioError> {
        let scenario = Scenario::parse(name, text, variant)?;
        // Its chances differ by seed, but not its starts and outages, which the plan needs.
        let network =
            read_traces(&scenario, 1, traces).ok().and_then(|mut traces| Network::of(&scenario, &mut traces).ok());
        let Some(network) = network else {
            let files: Vec<_> = scenario.recorded_traces().into_iter().collect();
            let reason = format!("recorded traces are not part of the project, and not here: {}", files.join(", "));
            self.missing.extend(works.iter().map(|work| Missing {
                scenario: name.to_owned(),
                variant: variant.map(str::to_owned),
                work: work.to_string(),
                peer: None,
                reason: reason.clone(),
            }));
            return Ok(());
        };
        self.scenarios.push(Arc::new(Chosen { scenario, text: text.to_owned(), network }));
        Ok(())
    }
}

/// Why a work is left out that begins before an outage.
pub(crate) const NO_OUTAGE: &str = "the scenario has no outage";

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const TEXT: &str = "summary = 's'\nbasis = 'b'\nsource = 's'\n[access.cell]\nrtt_ms = 60\nrate_kbit = 800\n\
                        [variant.long.access.cell]\nrtt_ms = 600\n\
                        [variant.recorded.access.cell.down]\ntrace_file = 'a.down'\n\
                        [variant.ci]\nscaled = 6\n";

    fn labels(names: &[&str]) -> Result<(Vec<String>, usize), ChooseError> {
        let folder = tempfile::tempdir().expect("a folder");
        for file in ["one.toml", "two.toml"] {
            fs::write(folder.path().join(file), TEXT).expect("written");
        }
        let scenarios = names.iter().map(|name| (*name).to_owned()).collect();
        let selection = SelectionArgs { scenarios, works: vec![Work::Get2k] };
        let choice = choose(&Catalogue::new(folder.path().to_owned()), &selection, Path::new("/nowhere"))?;
        Ok((choice.scenarios.iter().map(|chosen| chosen.label()).collect(), choice.missing.len()))
    }

    #[test]
    fn the_help_names_every_work() {
        let help = SelectionArgs::augment_args(clap::Command::new("lab")).render_long_help().to_string();
        for work in Work::ALL {
            let is_named =
                help.split(|letter: char| !letter.is_alphanumeric() && letter != '-').any(|word| word == work.as_str());
            assert!(is_named, "{work}");
        }
    }

    #[test]
    fn names_stars_and_variants_are_told_apart() {
        assert_eq!(labels(&[]).expect("good").0, ["one", "two"]);
        assert_eq!(labels(&["two:ci"]).expect("good").0, ["two:ci"]);
        assert_eq!(labels(&["one:long", "two"]).expect("good").0, ["one:long", "two"]);
    }

    #[test]
    fn a_variant_whose_recording_is_not_there_is_missing_and_no_mistake() {
        assert_eq!(labels(&["one:*"]).expect("good"), (vec!["one".into(), "one:long".into()], 1));
    }

    #[test]
    fn what_does_not_exist_is_named() {
        assert!(labels(&["three"]).expect_err("no such").to_string().contains("no scenario `three`"));
        assert!(labels(&["one:longer"]).expect_err("no such").to_string().contains("did you mean `long`"));
    }
}
