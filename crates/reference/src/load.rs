//! From the embedded files to records.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::SCHEMA_VERSION;
use crate::record::Record;

macro_rules! files {
    ($($name:literal),* $(,)?) => { &[$(($name, include_str!(concat!("../records/", $name, ".toml")))),*] };
}

/// Every file of `records/`, in the order in which they are listed.
pub(crate) const FILES: &[(&str, &str)] = files![
    "moonrail-access",
    "moonrail-arguments",
    "moonrail-memory",
    "moonrail-peers",
    "moonrail-start",
    "moonrail-calls",
    "moonrail-logs",
    "moonrail-python",
    "moonrail-command",
    "mooncake-codes",
    "mooncake-tcp",
    "mooncake-start",
    "mooncake-rdma",
    "sglang-engine",
    "sglang-disaggregation",
    "sglang-store",
    "vllm",
    "lmcache",
    "checkpoint-engine",
    "kernel",
    "verbs",
];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    schema_version: u32,
    record: Vec<Record>,
}

/// Why the records cannot be used. Those that are built in always can: a test reads them.
#[derive(Debug, thiserror::Error)]
#[error("records/{file}.toml: {what}")]
pub struct BadRecords {
    file: String,
    what: String,
}

/// All records.
#[derive(Debug)]
pub struct Reference {
    records: Vec<Record>,
    by_key: HashMap<String, usize>,
}

impl Reference {
    /// The records that are built in, read once a process (some milliseconds).
    ///
    /// # Panics
    /// Never in a build whose tests pass: the files are part of it.
    #[must_use]
    pub fn shared() -> &'static Reference {
        static SHARED: LazyLock<Reference> =
            LazyLock::new(|| Reference::built_in().expect("invariant: a test reads the built-in records"));
        &SHARED
    }

    /// Reads the records that are built in.
    ///
    /// # Errors
    /// A file is no TOML of this shape, or two records share an identity.
    pub fn built_in() -> Result<Reference, BadRecords> {
        Reference::parse(FILES)
    }

    /// Reads records from files given as name and text.
    ///
    /// # Errors
    /// As [`Reference::built_in`].
    pub fn parse(files: &[(&str, &str)]) -> Result<Reference, BadRecords> {
        let mut reference = Reference { records: Vec::new(), by_key: HashMap::new() };
        for &(name, text) in files {
            let bad = |what: String| BadRecords { file: name.to_owned(), what };
            let file: File = toml::from_str(text).map_err(|error| bad(error.to_string()))?;
            if file.schema_version != SCHEMA_VERSION {
                return Err(bad(format!("schemaVersion is {}, not {SCHEMA_VERSION}", file.schema_version)));
            }
            for record in file.record {
                reference.add(record).map_err(bad)?;
            }
        }
        Ok(reference)
    }

    fn add(&mut self, record: Record) -> Result<(), String> {
        let index = self.records.len();
        for key in [&record.id, &record.slug] {
            if self.by_key.insert(key.clone(), index).is_some() {
                return Err(format!("{key} is there twice"));
            }
        }
        if let Some(code) = &record.error_code {
            // Several records may carry one number; the first one is about the number itself.
            self.by_key.entry(code.to_ascii_lowercase()).or_insert(index);
        }
        self.records.push(record);
        Ok(())
    }

    /// Every record, those of one subject side by side.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The record with this id, slug, code or number, in any case.
    #[must_use]
    pub fn by_key(&self, key: &str) -> Option<&Record> {
        self.by_key.get(&key.trim().to_ascii_lowercase()).map(|&index| &self.records[index])
    }
}
