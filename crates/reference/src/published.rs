//! A record as the JSON that is published.

use serde_json::{Value, json};

use crate::SCHEMA_VERSION;
use crate::load::Reference;
use crate::record::{Record, Snippet};

impl Record {
    /// The whole record, as `/api/errors/{id}` gives it; its shape is [`crate::SCHEMA`].
    #[must_use]
    pub fn to_json(&self) -> Value {
        let reference = Reference::shared();
        let related: Vec<Value> = self
            .related
            .iter()
            .filter_map(|slug| reference.by_key(slug))
            .map(|other| json!({ "id": other.id, "slug": other.slug, "errorMessage": other.error_message }))
            .collect();
        json!({
            "schemaVersion": SCHEMA_VERSION,
            "id": self.id,
            "slug": self.slug,
            "repo": self.repo,
            "errorCode": self.error_code,
            "errorMessage": self.error_message,
            "messagePattern": self.message_pattern,
            "seenAs": self.seen_as,
            "errorType": self.error_type,
            "errorClass": self.error_class,
            "severity": self.severity,
            "symptom": self.symptom,
            "source": self.source,
            "checked": self.checked,
            "cause": self.cause,
            "fix": self.fix,
            "documentation": self.documentation,
            "triggerScenarios": self.trigger_scenarios,
            "commonSituations": self.common_situations,
            "solutions": self.solutions,
            "exampleFix": text(self.example_fix.as_ref()),
            "exampleFixLanguage": language(self.example_fix.as_ref()),
            "exampleFixRuns": runs(self.example_fix.as_ref()),
            "handlingStrategy": self.handling_strategy,
            "validationCode": text(self.validation_code.as_ref()),
            "validationCodeLanguage": language(self.validation_code.as_ref()),
            "validationCodeRuns": runs(self.validation_code.as_ref()),
            "tryCatchPattern": text(self.try_catch_pattern.as_ref()),
            "tryCatchPatternLanguage": language(self.try_catch_pattern.as_ref()),
            "preventionTips": self.prevention_tips,
            "tags": self.tags,
            "related": related,
        })
    }

    /// What a list shows of it.
    #[must_use]
    pub fn to_short_json(&self) -> Value {
        json!({
            "id": self.id,
            "slug": self.slug,
            "repo": self.repo,
            "errorCode": self.error_code,
            "errorMessage": self.error_message,
            "severity": self.severity,
            "cause": self.cause,
            "fix": self.fix,
            "tags": self.tags,
        })
    }
}

fn text(snippet: Option<&Snippet>) -> Value {
    snippet.map_or(Value::Null, |snippet| json!(snippet.text))
}

fn language(snippet: Option<&Snippet>) -> Value {
    snippet.map_or(Value::Null, |snippet| json!(snippet.language))
}

fn runs(snippet: Option<&Snippet>) -> Value {
    snippet.map_or(Value::Null, |snippet| json!(snippet.runs))
}
