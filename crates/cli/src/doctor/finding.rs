//! What the doctor says: findings, each with what helps.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// Looked at, and as it should be.
    Ok,
    /// Worth knowing.
    Note,
    /// It will hurt some day.
    Warning,
    /// It does not work, or does not tell the truth.
    Problem,
}

/// One thing that was looked at.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Finding {
    /// A stable name, such as `host.ports`.
    pub(crate) check: String,
    pub(crate) level: Level,
    /// What is so, and where.
    pub(crate) what: String,
    /// What to do, where something is to be done.
    pub(crate) fix: Option<String>,
    /// What only this check has to say.
    #[serde(flatten)]
    pub(crate) more: Map<String, Value>,
}

impl Finding {
    fn new(check: &str, level: Level, what: String, fix: Option<String>) -> Self {
        Self { check: check.to_owned(), level, what, fix, more: Map::new() }
    }

    pub(crate) fn ok(check: &str, what: impl Into<String>) -> Self {
        Self::new(check, Level::Ok, what.into(), None)
    }

    pub(crate) fn note(check: &str, what: impl Into<String>) -> Self {
        Self::new(check, Level::Note, what.into(), None)
    }

    pub(crate) fn warning(check: &str, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(check, Level::Warning, what.into(), Some(fix.into()))
    }

    pub(crate) fn problem(check: &str, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(check, Level::Problem, what.into(), Some(fix.into()))
    }

    pub(crate) fn with_fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.more.insert(key.to_owned(), value.into());
        self
    }
}

impl Level {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}
