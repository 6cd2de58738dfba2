//! What a record holds. The names are those of the published JSON; docs/error-reference.md explains them.

use serde::{Deserialize, Serialize};

/// One failure. Texts are plain English; code is in the snippets.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct Record {
    /// Stable identity: 16 hex digits.
    pub id: String,
    /// Words of the message joined by `-`; unique, and as stable as the id.
    pub slug: String,
    /// Whose message it is, as `owner/name`.
    pub repo: String,
    /// A code or number that the message carries, if any: `PEER_GONE`, `-102`, `ECONNREFUSED`.
    #[serde(default)]
    pub error_code: Option<String>,
    /// The message as raised, with its placeholders in angle brackets.
    pub error_message: String,
    /// Regular expression that finds the message in a line of a log.
    pub message_pattern: String,
    /// The message as people see it: real lines, each of which the pattern matches.
    pub seen_as: Vec<String>,
    /// How it shows.
    pub error_type: ErrorType,
    /// Its class, where it is an exception.
    #[serde(default)]
    pub error_class: Option<String>,
    /// How bad it is.
    pub severity: Severity,
    /// It only follows from another failure, so that one is to be looked for first.
    #[serde(default)]
    pub symptom: bool,
    /// Where it is raised: file and function, or the system call.
    pub source: String,
    /// Against what the message was checked: release, and whether it was produced or read.
    pub checked: String,
    /// Why it happens, in one sentence.
    pub cause: String,
    /// What mends it, in one sentence.
    pub fix: String,
    /// What it means and why it is raised.
    pub documentation: String,
    /// What call makes it happen.
    pub trigger_scenarios: String,
    /// When people meet it.
    pub common_situations: String,
    /// What to do, the most likely first.
    pub solutions: Vec<String>,
    /// Before and after.
    #[serde(default)]
    pub example_fix: Option<Snippet>,
    /// `validation`, `try-catch`, `retry`, `configuration`, `upgrade` or `none`.
    pub handling_strategy: String,
    /// Tells beforehand whether it would happen.
    #[serde(default)]
    pub validation_code: Option<Snippet>,
    /// How a program handles it.
    #[serde(default)]
    pub try_catch_pattern: Option<Snippet>,
    /// How to never see it again.
    pub prevention_tips: Vec<String>,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// Slugs of records that belong to it.
    pub related: Vec<String>,
    /// For Moonrail's own codes: what the code is generated from.
    #[serde(default)]
    pub code: Option<CodeFacts>,
}

/// What `cargo xtask generate` makes of a Moonrail code.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct CodeFacts {
    /// The variant of Rust's `Code`.
    pub variant: String,
    /// Mooncake's number for it, where its callers can see one; -1 otherwise.
    pub mooncake: i32,
    /// The sentence in Rust's documentation.
    pub summary: String,
}

/// A piece of code in a record.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct Snippet {
    /// What it is written in.
    pub language: Language,
    /// What running it needs; tests run what they can.
    pub runs: Runs,
    /// The code.
    pub text: String,
}

/// The language of a snippet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Language {
    /// Python 3.10 or newer.
    Python,
    /// POSIX shell.
    Shell,
}

/// What a snippet needs to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Runs {
    /// Nothing but its interpreter.
    Anywhere,
    /// The Python package `moonrail`, or the `moonrail` command.
    Moonrail,
    /// What no test machine has (a device, a cluster, another project): only its syntax is checked.
    Elsewhere,
}

/// How a failure shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ErrorType {
    /// An exception with this text.
    Exception,
    /// A line in a log.
    Log,
    /// A number that a call returns.
    ReturnCode,
    /// An error of the operating system, quoted by others.
    System,
    /// A line of a command, and its exit code.
    Command,
}

/// How bad a failure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Severity {
    /// Normal; people take it for a failure.
    Info,
    /// Something is not as it was asked for, and work goes on.
    Warning,
    /// Work failed.
    Error,
}

impl Severity {
    /// Lower-case name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}
