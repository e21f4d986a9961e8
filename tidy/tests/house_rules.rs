//! The house rules, each as one test over this workspace. What a rule says stands at its function in `ropeway_tidy`.

use std::sync::LazyLock;

use ropeway_tidy::{
    Tree, Workspace, assert_clean, documents, imports, licences, manifests, metrics, modules, purity, sources,
    workspace_root,
};

static TREE: LazyLock<Tree> = LazyLock::new(|| Tree::load(&workspace_root()).expect("the checkout can be read"));
static WORKSPACE: LazyLock<Workspace> =
    LazyLock::new(|| Workspace::load(&workspace_root()).expect("cargo knows the workspace"));

#[test]
fn every_crate_imports_only_what_its_layer_may() {
    assert_clean("who may import whom", &imports::layers(&WORKSPACE, imports::LAYERS, imports::DEV_EXCEPTIONS));
}

#[test]
fn core_depends_on_nothing_outside_its_list() {
    assert_clean("what core may use", &imports::core_dependencies(&WORKSPACE));
}

#[test]
fn core_has_no_clock_socket_file_thread_or_randomness_of_its_own() {
    assert_clean("core is pure", &purity::impurities(&TREE));
}

#[test]
fn everything_we_build_on_has_an_accepted_licence() {
    assert_clean("licences", &licences::unacceptable(&WORKSPACE, licences::EXCEPTIONS));
}

#[test]
fn no_source_file_is_too_long() {
    assert_clean("length of a file", &sources::lengths(&TREE, sources::GENERATED));
}

#[test]
fn every_source_file_is_linked() {
    assert_clean("unlinked files", &modules::unlinked(&TREE));
}

#[test]
fn every_crate_opens_with_what_it_is() {
    assert_clean("opening line", &sources::opening_lines(&TREE));
}

#[test]
fn unsafe_code_stands_only_in_its_places_and_says_why() {
    assert_clean("unsafe code", &sources::unsafe_code(&TREE, sources::UNSAFE_ALLOWED));
}

#[test]
fn lints_are_silenced_with_a_reason() {
    assert_clean("silenced lints", &sources::silenced_lints(&TREE, sources::GENERATED));
}

#[test]
fn every_counter_ends_in_total() {
    assert_clean("names of counters", &metrics::counter_names(&TREE));
}

#[test]
fn manifests_take_from_the_workspace_what_it_sets_for_all() {
    assert_clean("manifests", &manifests::inheritance(&TREE, manifests::OUTSIDE));
}

#[test]
fn a_nested_clippy_file_repeats_the_lines_of_the_root() {
    assert_clean("clippy.toml", &manifests::clippy_settings(&TREE));
}

#[test]
fn every_relative_link_leads_to_a_file() {
    assert_clean("links", &documents::links(&TREE));
}

#[test]
fn the_readme_is_short() {
    assert_clean("README", &documents::readme(&TREE));
}

#[test]
fn decisions_are_numbered_once_each() {
    assert_clean("decisions", &documents::decisions(&TREE));
}

#[test]
fn no_text_tells_of_one_machine_or_of_a_registry() {
    assert_clean("private words", &documents::private_words(&TREE, documents::TOOL_WRITTEN));
}
