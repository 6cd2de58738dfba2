//! Several engines looked at together.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use moonrail::compat::{Matrix, Problem, Severity, Side, Upgrade};
use moonrail::{Error, Sighting, Survey};
use serde_json::{Value, json};

use super::finding::Finding;
use crate::endpoint::{self, P2P};
use crate::failure::Failure;

/// Engines looked at at the same time.
const AT_ONCE: usize = 32;

/// Engines, and what they come to together.
pub(crate) struct Cluster {
    /// By name; what was seen, or why not.
    pub(crate) peers: Vec<(String, Result<Sighting, Error>)>,
    /// Of those that were seen, in their order.
    pub(crate) matrix: Matrix,
}

/// Looks at the engines named, or at all of the metadata server.
pub(crate) fn survey(
    names: &[String],
    metadata: Option<&str>,
    timeout: Duration,
) -> Result<Cluster, Failure> {
    if metadata.is_none()
        && let Some(name) = names.iter().find(|name| !endpoint::has_port(name))
    {
        let what = format!("{name}: a peer is host:port");
        return Err(Failure::usage(what)
            .fix("give the port of its handshake, or --metadata URL and its segment's name"));
    }
    let cluster_id = std::env::var("MC_METADATA_CLUSTER_ID").ok().filter(|id| !id.is_empty());
    let survey = Survey::new(metadata.unwrap_or(P2P), cluster_id.as_deref(), timeout)
        .map_err(|error| Failure::engine("cannot look at the cluster", &error))?;
    let names = if names.is_empty() {
        survey.segments().map_err(|error| Failure::engine("cannot list the segments", &error))?
    } else {
        names.to_vec()
    };
    let peers = look_at_all(&survey, &names);
    let sides: Vec<Side> =
        peers.iter().filter_map(|(_, seen)| Some(seen.as_ref().ok()?.side.clone())).collect();
    Ok(Cluster { peers, matrix: Matrix::new(sides) })
}

fn look_at_all(survey: &Survey, names: &[String]) -> Vec<(String, Result<Sighting, Error>)> {
    let mut peers = Vec::with_capacity(names.len());
    for some in names.chunks(AT_ONCE) {
        thread::scope(|scope| {
            let looks: Vec<_> = some.iter().map(|name| (name, scope.spawn(|| survey.look(name)))).collect();
            for (name, look) in looks {
                let seen = look.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                peers.push((name.clone(), seen));
            }
        });
    }
    peers
}

impl Cluster {
    /// Whether every engine could be looked at.
    pub(crate) fn is_complete(&self) -> bool {
        self.peers.iter().all(|(_, seen)| seen.is_ok())
    }

    fn seen(&self) -> Vec<&Sighting> {
        self.peers.iter().filter_map(|(_, seen)| seen.as_ref().ok()).collect()
    }

    /// The order of upgrades, by name.
    pub(crate) fn upgrades(&self) -> Vec<(String, Upgrade)> {
        let seen = self.seen();
        self.matrix.upgrades().into_iter().map(|step| (seen[step.index].name.clone(), step)).collect()
    }

    /// What is wrong with engines and pairs.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let mut findings: Vec<Finding> =
            self.peers.iter().enumerate().flat_map(|(index, peer)| of_a_peer(&letter(index), peer)).collect();
        findings.extend(self.of_pairs());
        findings.extend(self.habits());
        findings
    }

    /// One finding for each kind of problem, with the pairs that have it, by their letters.
    fn of_pairs(&self) -> Vec<Finding> {
        let (seen, letters) = (self.seen(), self.letters());
        let mut pairs: BTreeMap<Problem, Vec<(usize, usize)>> = BTreeMap::new();
        for from in 0..seen.len() {
            for to in (0..seen.len()).filter(|&to| to != from) {
                for problem in self.matrix.pair(from, to).problems {
                    pairs.entry(problem).or_default().push((from, to));
                }
            }
        }
        let tell = |(problem, pairs): (Problem, Vec<(usize, usize)>)| {
            let targets =
                |row| pairs.iter().filter(move |(from, _)| *from == row).map(|&(_, to)| letters[to].clone());
            let rows = (0..seen.len()).map(|row| (row, targets(row).collect::<Vec<_>>()));
            let rows = rows.filter(|(_, targets)| !targets.is_empty());
            let text: Vec<String> =
                rows.map(|(row, to)| format!("{} to {}", letters[row], to.join(" "))).collect();
            let what = format!("{}; {}", text.join(", "), problem.what());
            let check = format!("pair.{}", problem.as_str());
            let finding = match problem.severity() {
                Severity::Note => Finding::note(&check, what).with_fix(problem.fix()),
                _ if problem == Problem::ProbeSaysDead => Finding::warning(&check, what, problem.fix()),
                _ => Finding::problem(&check, what, problem.fix()),
            };
            let names: Vec<[&str; 2]> =
                pairs.iter().map(|&(from, to)| [seen[from].name.as_str(), seen[to].name.as_str()]).collect();
            finding.with("pairs", json!(names))
        };
        pairs.into_iter().map(tell).collect()
    }

    /// What operators meet with some kinds of engines, whatever their peers are.
    fn habits(&self) -> Vec<Finding> {
        let letters = self.letters();
        let mut habits: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (index, seen) in self.seen().into_iter().enumerate() {
            for habit in seen.side.engine.habits() {
                habits.entry(habit).or_default().push(letters[index].clone());
            }
        }
        let tell = |(habit, letters): (&str, Vec<String>)| {
            Finding::note("peer.habits", format!("{}: {habit}", letters.join(", ")))
        };
        habits.into_iter().map(tell).collect()
    }

    /// What stands for the engines that were seen, in tables and findings.
    pub(crate) fn letters(&self) -> Vec<String> {
        let seen = self.peers.iter().enumerate().filter(|(_, (_, seen))| seen.is_ok());
        seen.map(|(index, _)| letter(index)).collect()
    }

    /// The report, for programs.
    pub(crate) fn as_json(&self) -> Value {
        let seen = self.seen();
        let pairs = (0..seen.len()).flat_map(|from| (0..seen.len()).map(move |to| (from, to)));
        let pairs = pairs.filter(|(from, to)| from != to).map(|(from, to)| {
            let pair = self.matrix.pair(from, to);
            let problems: Vec<&str> = pair.problems.iter().map(|problem| problem.as_str()).collect();
            json!({
                "initiator": seen[from].name,
                "target": seen[to].name,
                "path": pair.path,
                "protocol": pair.protocol,
                "says": pair.to_string(),
                "problems": problems,
            })
        });
        json!({
            "peers": self.peers.iter().enumerate().map(peer_json).collect::<Vec<_>>(),
            "pairs": pairs.collect::<Vec<_>>(),
            "upgrades": self.upgrades().iter().map(|(name, step)| {
                json!({ "peer": name, "mends": step.mends, "left": step.left })
            }).collect::<Vec<_>>(),
        })
    }
}

/// `A` to `Z`, then `A1` and so on.
pub(crate) fn letter(index: usize) -> String {
    let letter = char::from(b'A' + (index % 26) as u8);
    if index < 26 { letter.to_string() } else { format!("{letter}{}", index / 26) }
}

fn of_a_peer(letter: &str, (name, seen): &(String, Result<Sighting, Error>)) -> Vec<Finding> {
    let name = name.as_str();
    let seen = match seen {
        Ok(seen) => seen,
        Err(error) => {
            let fix = "start it, or correct its name; with a metadata server: --metadata URL and its segment's name";
            let finding = Finding::problem("peer.unreachable", error.to_string(), fix);
            return vec![finding.with("peer", name).with("code", error.code().as_str())];
        }
    };
    let mut findings = Vec::new();
    if let Some(why) = &seen.data_failure {
        let what = format!("{letter}: its data port cannot be reached from here: {why}");
        let fix = "look at the address that it advertises, and at firewalls between";
        findings.push(Finding::problem("peer.data-port", what, fix).with("peer", name));
    }
    if let Some(error) = &seen.handshake_failure {
        let what = format!(
            "its handshake port does not answer, so probes and notifications do not reach it: {error}"
        );
        let fix = "with a metadata server Mooncake 0.3.7 opens none: upgrade it; else look at its log";
        findings.push(Finding::warning("peer.handshake", what, fix).with("peer", name));
    }
    if !seen.capabilities.lacks.is_empty() {
        let what = format!("{letter} runs {}: {}", seen.release, seen.capabilities.lacks.join("; "));
        findings.push(Finding::note("peer.release", what).with("peer", name));
    }
    findings
}

fn peer_json((index, (name, seen)): (usize, &(String, Result<Sighting, Error>))) -> Value {
    match seen {
        Ok(seen) => json!({
            "letter": letter(index),
            "name": name,
            "release": seen.release,
            "moonrail": seen.side.engine.is_moonrail(),
            "data_version": seen.side.engine.data_version(),
            "serves": seen.capabilities.serves,
            "lacks": seen.capabilities.lacks,
            "habits": seen.side.engine.habits(),
            "protocol": seen.side.protocol,
            "handshake": seen.handshake,
            "data": seen.data.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "data_failure": seen.data_failure,
            "handshake_failure": seen.handshake_failure.as_ref().map(ToString::to_string),
            "buffers": seen.buffers.len(),
            "registered_bytes": seen.buffers.iter().fold(0, |sum: u64, buffer| sum.saturating_add(buffer.1)),
        }),
        Err(error) => {
            json!({ "letter": letter(index), "name": name, "error": { "code": error.code().as_str(), "message": error.message() } })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_go_on() {
        assert_eq!([letter(0), letter(25), letter(26)], ["A", "Z", "A1"]);
    }
}
