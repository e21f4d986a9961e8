//! The house rules of the workspace, as tests.
