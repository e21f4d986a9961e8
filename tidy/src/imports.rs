//! Who may import whom: the layers of the workspace, and what `core` may use from outside.

use std::{fs, path::Path};

use cargo_metadata::{DependencyKind, MetadataCommand};

use crate::{Finding, manifests::line_of};

/// What `cargo metadata` says of the workspace and of everything it builds on.
#[derive(Clone, Debug, Default)]
pub struct Workspace {
    /// Every package, our own and others'.
    pub packages: Vec<Package>,
}

/// One package of the dependency graph.
#[derive(Clone, Debug, Default)]
pub struct Package {
    /// The package's name.
    pub name: String,
    /// The manifest, relative to the workspace's root; `None` for a package of somebody else.
    pub manifest: Option<String>,
    /// The licence expression of the manifest.
    pub licence: Option<String>,
    /// What the manifest depends on, for every target.
    pub dependencies: Vec<Dependency>,
    /// The features and what each turns on.
    pub features: Vec<(String, Vec<String>)>,
}

/// One entry of a manifest's dependency tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// The line of the manifest, from 1; 1 in a package of somebody else.
    pub line: usize,
    /// The package depended on.
    pub name: String,
    /// The table it stands in.
    pub table: Table,
    /// Whether a feature must turn it on.
    pub optional: bool,
}

/// A dependency table of a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// `[build-dependencies]`.
    Build,
    /// `[dev-dependencies]`.
    Dev,
    /// `[dependencies]`.
    Normal,
}

impl Workspace {
    /// Asks cargo about the workspace at `root`.
    ///
    /// # Errors
    ///
    /// When cargo cannot read the workspace, with cargo's words.
    pub fn load(root: &Path) -> Result<Self, cargo_metadata::Error> {
        let metadata = MetadataCommand::new().manifest_path(root.join("Cargo.toml")).exec()?;
        let packages = metadata.packages.into_iter().map(|package| {
            let path = package.manifest_path.strip_prefix(&metadata.workspace_root).unwrap_or(&package.manifest_path);
            let manifest = package.source.is_none().then(|| path.as_str().replace('\\', "/"));
            let text = manifest.as_ref().and_then(|path| fs::read_to_string(root.join(path)).ok()).unwrap_or_default();
            Package {
                name: package.name.to_string(),
                manifest,
                licence: package.license,
                dependencies: package.dependencies.into_iter().map(|entry| Dependency::new(entry, &text)).collect(),
                features: package.features.into_iter().collect(),
            }
        });
        Ok(Self { packages: packages.collect() })
    }

    /// Returns our own packages, each with its manifest.
    pub fn own(&self) -> impl Iterator<Item = (&Package, &str)> {
        self.packages.iter().filter_map(|package| Some((package, package.manifest.as_deref()?)))
    }
}

impl Dependency {
    fn new(dependency: cargo_metadata::Dependency, manifest: &str) -> Self {
        let table = match dependency.kind {
            DependencyKind::Build => Table::Build,
            DependencyKind::Development => Table::Dev,
            DependencyKind::Normal | DependencyKind::Unknown => Table::Normal,
        };
        let line = line_of(manifest, dependency.rename.as_ref().unwrap_or(&dependency.name));
        Self { line, name: dependency.name, table, optional: dependency.optional }
    }
}

/// One row of the table of layers: a package, its folder and the packages of ours it may import.
pub type Layer = (&'static str, &'static str, &'static [&'static str]);

/// The layers of the workspace, lowest first.
pub const LAYERS: &[Layer] = &[
    ("ropeway-core", "crates/core", &[]),
    ("ropeway-log", "crates/log", &[]),
    ("ropeway-net", "crates/net", &["ropeway-core"]),
    ("ropeway-cluster", "crates/cluster", &["ropeway-core"]),
    ("ropeway", "crates/client", &["ropeway-core", "ropeway-log", "ropeway-net"]),
    ("ropeway-gateway", "crates/gateway", &["ropeway-cluster", "ropeway-core", "ropeway-net"]),
    ("ropeway-dispatch", "crates/dispatch", &["ropeway-cluster", "ropeway-core", "ropeway-net"]),
    ("ropeway-relay", "crates/relay", &["ropeway-cluster", "ropeway-core", "ropeway-net"]),
    ("ropeway-observe", "crates/observe", &["ropeway-cluster", "ropeway-core", "ropeway-net"]),
    (
        "ropeway-cli",
        "crates/cli",
        &[
            "ropeway",
            "ropeway-cluster",
            "ropeway-core",
            "ropeway-dispatch",
            "ropeway-gateway",
            "ropeway-log",
            "ropeway-net",
            "ropeway-observe",
            "ropeway-relay",
        ],
    ),
    ("ropeway-bindings", "bindings", &["ropeway", "ropeway-log"]),
    ("ropeway-lab", "lab", &["ropeway", "ropeway-core", "ropeway-net"]),
    // Its targets are decoders, wherever these are; nothing imports it.
    ("ropeway-fuzz-bodies", "fuzz/bodies", &["ropeway-core", "ropeway-gateway", "ropeway-net"]),
    ("ropeway-tidy", "tidy", &[]),
];

/// Development dependencies that the layers forbid and a reason allows: importer, imported, reason.
pub const DEV_EXCEPTIONS: &[(&str, &str, &str)] = &[];

/// What `core` may depend on, besides for its build and its tests.
pub const CORE_MAY_USE: &[&str] =
    &["bytes", "ed25519-dalek", "http", "prost", "rand_core", "rand_pcg", "serde", "thiserror", "tracing", "url"];

/// What `core` may depend on under a feature only: package and feature.
pub const CORE_MAY_USE_UNDER: &[(&str, &str)] = &[("toml", "sim")];

/// Finds the packages of ours that import what their layer may not, and those that have no place in the table.
#[must_use]
pub fn layers(workspace: &Workspace, layers: &[Layer], dev_exceptions: &[(&str, &str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut unused = dev_exceptions.to_vec();
    for (package, manifest) in workspace.own() {
        let Some((_, folder, may_import)) = layers.iter().find(|(name, ..)| *name == package.name) else {
            let message = format!("`{}` has no place in LAYERS of tidy/src/imports.rs: give it one", package.name);
            findings.push(Finding::new(manifest, 1, message));
            continue;
        };
        if *manifest != format!("{folder}/Cargo.toml") {
            findings.push(Finding::new(manifest, 1, format!("`{}` belongs in {folder}/", package.name)));
        }
        let ours = |name: &str| workspace.own().any(|(other, _)| other.name == name);
        for dependency in package.dependencies.iter().filter(|dependency| ours(&dependency.name)) {
            let excepted = |(from, to, _): &(&str, &str, &str)| *from == package.name && *to == dependency.name;
            if may_import.contains(&dependency.name.as_str()) || dependency.name == package.name {
                continue;
            }
            if dependency.table == Table::Dev && dev_exceptions.iter().any(excepted) {
                unused.retain(|exception| !excepted(exception));
                continue;
            }
            let message = format!(
                "`{}` may not import `{}`: move what both need to a lower layer, or let the cli join them",
                package.name, dependency.name
            );
            findings.push(Finding::new(manifest, dependency.line, message));
        }
    }
    for (from, to, _) in unused {
        let message = format!("DEV_EXCEPTIONS lets `{from}` import `{to}`, which it does not: delete the entry");
        findings.push(Finding::new("tidy/src/imports.rs", 1, message));
    }
    findings
}

/// Finds the normal dependencies of `core` that are not on its list, or not under the feature they must be under.
#[must_use]
pub fn core_dependencies(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (core, manifest) in workspace.own().filter(|(package, _)| package.name == "ropeway-core") {
        for dependency in core.dependencies.iter().filter(|dependency| dependency.table == Table::Normal) {
            let name = dependency.name.as_str();
            let message = match CORE_MAY_USE_UNDER.iter().find(|(package, _)| *package == name) {
                Some((_, feature)) if dependency.optional && only_feature(core, name, feature) => continue,
                Some((_, feature)) => format!("core may use `{name}` only as an optional part of feature `{feature}`"),
                None if CORE_MAY_USE.contains(&name) => continue,
                None => format!(
                    "core may not use `{name}`: it decides and touches nothing; do this in net, or record a decision and add \
                     it to CORE_MAY_USE of tidy/src/imports.rs"
                ),
            };
            findings.push(Finding::new(manifest, dependency.line, message));
        }
    }
    findings
}

/// Tells whether `feature`, and no other, turns the optional `dependency` on.
fn only_feature(package: &Package, dependency: &str, feature: &str) -> bool {
    let explicit = format!("dep:{dependency}");
    let with_slash = format!("{dependency}/");
    let mut turning = package.features.iter().filter(|(_, parts)| {
        parts.iter().any(|part| *part == explicit || part == dependency || part.starts_with(&with_slash))
    });
    turning.next().is_some_and(|(name, _)| name == feature) && turning.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, folder: &str, imports: &[(&str, Table)]) -> Package {
        let dependency = |(name, table): &(&str, Table)| Dependency {
            line: 1,
            name: (*name).to_owned(),
            table: *table,
            optional: false,
        };
        Package {
            name: name.to_owned(),
            manifest: Some(format!("{folder}/Cargo.toml")),
            dependencies: imports.iter().map(dependency).collect(),
            ..Package::default()
        }
    }

    fn judge(packages: Vec<Package>, dev_exceptions: &[(&str, &str, &str)]) -> String {
        let findings = layers(&Workspace { packages }, LAYERS, dev_exceptions);
        findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_layers_as_designed_are_clean() {
        let packages = vec![
            package("ropeway-core", "crates/core", &[("bytes", Table::Normal)]),
            package("ropeway-net", "crates/net", &[("ropeway-core", Table::Normal)]),
            package("ropeway", "crates/client", &[("ropeway-net", Table::Normal)]),
            package("ropeway-cli", "crates/cli", &[("ropeway", Table::Normal), ("ropeway-core", Table::Dev)]),
        ];
        assert_eq!(judge(packages, &[]), "");
    }

    #[test]
    fn an_import_across_or_up_the_layers_is_found_in_every_table() {
        let forbidden = [
            ("ropeway", "crates/client", "ropeway-cluster", Table::Normal),
            ("ropeway-gateway", "crates/gateway", "ropeway-dispatch", Table::Normal),
            ("ropeway-core", "crates/core", "ropeway-net", Table::Build),
            ("ropeway-log", "crates/log", "ropeway-core", Table::Normal),
            ("ropeway-cli", "crates/cli", "ropeway-lab", Table::Normal),
            ("ropeway-gateway", "crates/gateway", "ropeway", Table::Dev),
        ];
        for (from, folder, to, table) in forbidden {
            let packages = vec![package(from, folder, &[(to, table)]), package(to, "elsewhere", &[])];
            let found = judge(packages, &[]);
            assert!(found.contains(&format!("{folder}/Cargo.toml:1: `{from}` may not import `{to}`")), "{found}");
        }
    }

    #[test]
    fn a_listed_reason_allows_a_dev_dependency_and_only_that() {
        let with = |table| {
            vec![
                package("ropeway-gateway", "crates/gateway", &[("ropeway", table)]),
                package("ropeway", "crates/client", &[]),
            ]
        };
        let reason = [("ropeway-gateway", "ropeway", "its tests speak the link")];
        assert_eq!(judge(with(Table::Dev), &reason), "");
        assert!(judge(with(Table::Normal), &reason).contains("may not import"));
        assert!(judge(vec![package("ropeway", "crates/client", &[])], &reason).contains("delete the entry"));
    }

    #[test]
    fn a_package_without_a_place_or_in_another_place_is_found() {
        let found = judge(vec![package("ropeway-new", "crates/new", &[]), package("ropeway-net", "net", &[])], &[]);
        assert!(found.contains("crates/new/Cargo.toml:1: `ropeway-new` has no place"), "{found}");
        assert!(found.contains("net/Cargo.toml:1: `ropeway-net` belongs in crates/net/"), "{found}");
    }

    fn core_with(name: &str, optional: bool, features: &[(&str, &[&str])]) -> Vec<Finding> {
        let mut core = package("ropeway-core", "crates/core", &[]);
        core.dependencies.push(Dependency { line: 1, name: name.to_owned(), table: Table::Normal, optional });
        let owned = |(name, parts): &(&str, &[&str])| {
            ((*name).to_owned(), parts.iter().map(|part| (*part).to_owned()).collect())
        };
        core.features = features.iter().map(owned).collect();
        core_dependencies(&Workspace { packages: vec![core] })
    }

    #[test]
    fn core_is_held_to_its_list() {
        assert_eq!(core_with("bytes", false, &[]), []);
        assert_eq!(core_with("tokio", false, &[]).len(), 1);
        assert_eq!(core_with("tokio", true, &[("net", &["dep:tokio"])]).len(), 1);
    }

    #[test]
    fn core_has_toml_under_the_simulation_alone() {
        assert_eq!(core_with("toml", true, &[("sim", &["dep:toml"])]), []);
        assert_eq!(core_with("toml", false, &[("sim", &[])]).len(), 1);
        assert_eq!(core_with("toml", true, &[("default", &["dep:toml"]), ("sim", &["dep:toml"])]).len(), 1);
    }
}
