//! Finding a record by what somebody remembers of it.

use std::collections::{HashMap, HashSet};

use crate::load::Reference;
use crate::matcher::Matcher;
use crate::record::Record;

/// Words shorter than this say nothing.
const SHORTEST_WORD: usize = 3;
/// From this length on, a beginning stands for the word.
const SHORTEST_BEGINNING: usize = 5;

impl Reference {
    /// What `text` is about: one record for a code, number, id or slug; otherwise those whose message stands in it.
    /// Empty for none.
    ///
    /// ```
    /// let reference = moonrail_reference::Reference::shared();
    /// let found = reference.about("RuntimeError: Mooncake's batch register requires a newer version of \
    ///     mooncake-transfer-engine. Please upgrade Mooncake.");
    /// assert_eq!(found[0].slug, "sglang-batch-register-requires-newer-version");
    /// ```
    #[must_use]
    pub fn about(&self, text: &str) -> Vec<&Record> {
        if let Some(record) = self.by_key(text) {
            return vec![record];
        }
        let found: Vec<&Record> = text.lines().flat_map(|line| Matcher::shared().of_line(line)).collect();
        if found.is_empty() && text.contains('\n') {
            // A message that a terminal or a ticket has wrapped.
            return Matcher::shared().of_line(&text.split_whitespace().collect::<Vec<_>>().join(" "));
        }
        let mut seen = HashSet::new();
        found.into_iter().filter(|record| seen.insert(record.id.as_str())).collect()
    }

    /// The `most` records that share the most telling words with `text`, the nearest first.
    #[must_use]
    pub fn nearest(&self, text: &str, most: usize) -> Vec<&Record> {
        let asked = words(text);
        let bags: Vec<HashMap<String, f64>> = self.records().iter().map(bag).collect();
        let mut score: Vec<(f64, usize)> = Vec::new();
        let rarity: HashMap<&String, f64> = asked
            .iter()
            .map(|word| {
                let holders = bags.iter().filter(|bag| weight(bag, word) > 0.0).count();
                (word, ((1 + bags.len()) as f64 / (1 + holders) as f64).ln())
            })
            .collect();
        for (index, bag) in bags.iter().enumerate() {
            let sum: f64 = rarity.iter().map(|(word, rarity)| weight(bag, word) * rarity).sum();
            if sum > 0.0 {
                score.push((sum, index));
            }
        }
        score.sort_by(|a, b| b.0.total_cmp(&a.0));
        score.into_iter().take(most).map(|(_, index)| &self.records()[index]).collect()
    }
}

fn weight(bag: &HashMap<String, f64>, word: &str) -> f64 {
    if let Some(&weight) = bag.get(word) {
        return weight;
    }
    if word.len() < SHORTEST_BEGINNING {
        return 0.0;
    }
    let begins = |(other, weight): (&String, &f64)| other.starts_with(word).then_some(weight / 2.0);
    bag.iter().filter_map(begins).fold(0.0, f64::max)
}

/// The words of a record, each with what it is worth: where it stands, not how often.
fn bag(record: &Record) -> HashMap<String, f64> {
    let mut bag: HashMap<String, f64> = HashMap::new();
    let mut add = |text: &str, worth: f64| {
        for word in words(text) {
            let known = bag.entry(word).or_insert(0.0);
            *known = known.max(worth);
        }
    };
    add(&record.error_message, 3.0);
    add(record.error_code.as_deref().unwrap_or_default(), 3.0);
    add(&record.slug, 2.0);
    record.tags.iter().for_each(|tag| add(tag, 2.0));
    record.seen_as.iter().for_each(|seen| add(seen, 1.5));
    for text in [&record.cause, &record.fix, &record.documentation, &record.trigger_scenarios] {
        add(text, 1.0);
    }
    bag
}

fn words(text: &str) -> HashSet<String> {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| word.len() >= SHORTEST_WORD)
        .map(str::to_lowercase)
        .collect()
}
