//! One schedule on one rig: arrange, start, break, judge, mend, judge again, and see that the next call works.
//!
//! Owns the order of the steps and what is right after each. Who lives where is the rig's, the bytes are the areas'.

mod breaking;
mod judging;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use moonrail_wire::data::DataVersion;

use crate::content::Tag;
use crate::mooncake::Job;
use crate::orders::{Order, Refusal, Said, Transfer};
use crate::plan::{Fault, Initiator, Kind, Plan, Planned, Side, Target};
use crate::rig::{LIMITS, Owner, Rig};

/// What a machine that is busy with other things may add to any time limit.
const SLACK: Duration = Duration::from_millis(6000);
/// The same for each piece that needs a connection of its own.
const SLACK_EACH: Duration = Duration::from_millis(15);
/// Transfers whose places are written and read once more when everything is mended.
const NEXT: usize = 2;
/// Their numbers.
const NEXT_NUMBER: u8 = 32;

/// What one schedule did, for the statistics.
#[derive(Debug, Default, Clone)]
pub(crate) struct Tally {
    pub succeeded: usize,
    /// By code and stage, and one text of each.
    pub failed: BTreeMap<String, usize>,
    pub samples: BTreeMap<String, String>,
    pub unreported: usize,
    /// A fault has come about.
    pub fired: bool,
    /// Transfers failed while their target stood still; bytes of them came later all the same.
    pub stood_still: bool,
    pub late: bool,
    pub slowest: Duration,
}

/// Runs the schedule of `plan`.
///
/// # Errors
/// What is wrong, in one or a few lines.
pub(crate) fn run(rig: &mut Rig, plan: &Plan) -> Result<Tally, String> {
    rig.ensure_nodes()?;
    if let Target::Mooncake(kind) = plan.target {
        rig.stranger(kind)?;
    }
    let mut run = Run::new(rig, plan);
    run.arrange()?;
    run.arm();
    run.start()?;
    run.until_all_ended()?;
    run.after_the_end()?;
    run.mend()?;
    run.judge_all()?;
    run.next_calls()?;
    run.look_for_leaks()?;
    let tally = run.tally;
    rig.schedules += 1;
    Ok(tally)
}

struct Run<'a> {
    rig: &'a mut Rig,
    plan: &'a Plan,
    /// Initiator's and target's.
    owners: [Owner; 2],
    pending: Vec<u8>,
    began: Instant,
    /// Faults that have not happened yet, and what has to be undone.
    faults: Vec<Fault>,
    stopped: Option<(usize, Instant, Option<Duration>)>,
    killed: [bool; 2],
    /// Unregister orders without an answer.
    unregistering: Vec<(Side, Instant)>,
    /// Since when, and for how long the link is down.
    down: Option<(Instant, Duration)>,
    cancels: Vec<(u8, u64)>,
    tally: Tally,
}

impl<'a> Run<'a> {
    fn new(rig: &'a mut Rig, plan: &'a Plan) -> Self {
        let initiator = match plan.initiator {
            Initiator::Node => Owner::Node(0),
            Initiator::Mooncake(_) => Owner::Client,
        };
        let target = match plan.target {
            Target::Node => Owner::Node(1),
            Target::Mooncake(kind) => Owner::Stranger(kind),
        };
        let cancels = (0u8..).zip(&plan.transfers).filter_map(|(id, planned)| Some((id, planned.cancel?)));
        Self {
            rig,
            plan,
            owners: [initiator, target],
            pending: Vec::new(),
            began: Instant::now(),
            faults: plan.faults.clone(),
            stopped: None,
            killed: [false; 2],
            unregistering: Vec::new(),
            down: None,
            cancels: cancels.collect(),
            tally: Tally::default(),
        }
    }

    fn tag(&self, transfer: u8) -> Tag {
        Tag { schedule: self.plan.schedule_number(), transfer }
    }

    /// Where a transfer's bytes come from and go to: sides of `owners`.
    fn direction(write: bool) -> (usize, usize) {
        if write { (0, 1) } else { (1, 0) }
    }

    fn arrange(&mut self) -> Result<(), String> {
        for (id, planned) in (0u8..).zip(&self.plan.transfers) {
            self.arrange_one(id, planned, planned.write)?;
        }
        Ok(())
    }

    /// Puts a transfer's bytes where they come from, and notes where they may go to.
    fn arrange_one(&mut self, id: u8, planned: &Planned, write: bool) -> Result<(), String> {
        let (tag, (from, to)) = (self.tag(id), Self::direction(write));
        let mut offset = 0;
        for piece in &planned.pieces {
            let places = [piece.0, piece.1];
            let bytes = tag.bytes(offset, piece.2);
            offset += piece.2;
            self.rig.put(
                (self.owners[from], self.plan.engine, planned.managed[from]),
                places[from],
                &bytes,
            )?;
            if let Some(area) = self.rig.area(self.owners[to], self.plan.engine, planned.managed[to]) {
                area.shadow.may_become(id, places[to], bytes);
            }
        }
        Ok(())
    }

    fn start(&mut self) -> Result<(), String> {
        self.began = Instant::now();
        for (id, planned) in (0u8..).zip(&self.plan.transfers) {
            self.start_one(id, planned, planned.write, planned.timeout)?;
        }
        Ok(())
    }

    fn start_one(
        &mut self,
        id: u8,
        planned: &Planned,
        write: bool,
        timeout: Option<Duration>,
    ) -> Result<(), String> {
        let engine = self.plan.engine;
        let address = |rig: &mut Rig, side: usize, offset: usize| {
            rig.area(self.owners[side], engine, planned.managed[side]).map_or(0, |area| area.address(offset))
        };
        let entries: Vec<(u64, u64, u64)> = planned
            .pieces
            .iter()
            .map(|&(here, there, len)| (address(self.rig, 0, here), address(self.rig, 1, there), len as u64))
            .collect();
        self.pending.push(id);
        match self.plan.initiator {
            Initiator::Node => {
                let order = Transfer {
                    transfer: id,
                    engine,
                    submit: planned.submit,
                    peer: self.rig.name(self.owners[1], engine),
                    write,
                    entries,
                    timeout: timeout.map(|timeout| timeout.as_millis() as u64),
                };
                self.seat(0)?.node.tell(&Order::Transfer(order));
            }
            Initiator::Mooncake(version) => {
                let to = self.rig.data_address(1, engine).ok_or("the target has ended")?;
                let pieces = entries.iter().map(|&(here, there, len)| (here as usize, there, len as usize));
                let version = if version == 1 { DataVersion::V1 } else { DataVersion::V2 };
                let patience = Duration::from_millis(600);
                let job = Job { transfer: id, version, to, write, pieces: pieces.collect(), patience };
                self.rig.client.start(job);
            }
        }
        Ok(())
    }

    fn seat(&mut self, seat: usize) -> Result<&mut crate::rig::Seat, String> {
        self.rig.seats[seat].as_mut().ok_or_else(|| format!("node {seat} has ended"))
    }

    fn until_all_ended(&mut self) -> Result<(), String> {
        let limit = self.time_limit();
        loop {
            self.break_what_is_due()?;
            if self.pending.is_empty() && self.unregistering.is_empty() && !self.is_stopped_for_a_while() {
                return Ok(());
            }
            self.hear(Duration::from_millis(1))?;
            self.see_who_died()?;
            let ended = self.pending.is_empty() && self.unregistering.is_empty();
            if !ended && self.began.elapsed() > limit {
                let text = format!(
                    "after {:.1} s: transfers {:?} and {} unregister calls have not ended",
                    self.began.elapsed().as_secs_f64(),
                    self.pending,
                    self.unregistering.len()
                );
                return Err(text);
            }
        }
    }

    /// What every call is promised to take at most: finding the peer, one fault, and finding it once more.
    fn time_limit(&self) -> Duration {
        let once = Duration::from_millis(LIMITS.connect + LIMITS.handshake);
        let progress = Duration::from_millis(LIMITS.progress);
        let held_up = self.plan.faults.iter().map(|fault| match fault {
            Fault::Stop { side: Side::Initiator, time, .. } => time.unwrap_or_default(),
            Fault::Wire { .. } => breaking::HEALED_AFTER,
            Fault::Down { time } => *time,
            _ => Duration::ZERO,
        });
        2 * once + progress + held_up.sum::<Duration>() + self.slack()
    }

    fn slack(&self) -> Duration {
        if self.plan.target != Target::Mooncake(Kind::V1Closes) {
            return SLACK;
        }
        let pieces: usize = self.plan.transfers.iter().map(|planned| planned.pieces.len()).sum();
        SLACK + SLACK_EACH * pieces as u32
    }

    /// Takes what the processes have to say.
    fn hear(&mut self, patience: Duration) -> Result<(), String> {
        let mut words = Vec::new();
        match self.plan.initiator {
            Initiator::Mooncake(_) => words.extend(self.rig.client.hear(patience).map(|said| (0, said))),
            Initiator::Node => {
                let said = self.rig.seats[0].as_ref().and_then(|seat| seat.node.hear(patience));
                words.extend(said.map(|said| (0, said)));
            }
        }
        if self.plan.target == Target::Node {
            let said = self.rig.seats[1].as_ref().and_then(|seat| seat.node.hear(Duration::ZERO));
            words.extend(said.map(|said| (1, said)));
        }
        for (side, said) in words {
            match said {
                Said::Done { transfer, outcome, micros } => {
                    self.tally.slowest = self.tally.slowest.max(Duration::from_micros(micros));
                    self.pending.retain(|id| *id != transfer);
                    self.judge_ended(transfer, outcome)?;
                }
                Said::Carried { outcome, micros } => self.judge_carried(side, outcome, micros)?,
                Said::Up { .. } | Said::Failed { .. } => {}
            }
        }
        Ok(())
    }

    fn see_who_died(&mut self) -> Result<(), String> {
        for seat in 0..2 {
            let Some(status) = self.rig.seats[seat].as_mut().and_then(|it| it.node.ended()) else { continue };
            // The byte that it was to be killed at may have passed just now.
            self.break_what_is_due()?;
            let Some(it) = &self.rig.seats[seat] else { continue };
            if !self.killed[seat] {
                return Err(format!(
                    "node {seat} ended by itself: {status}; its log:\n    {}",
                    it.node.log()
                ));
            }
        }
        if self.killed[0] && self.plan.initiator == Initiator::Node {
            self.tally.unreported += self.pending.len();
            self.pending.clear();
            self.unregistering.retain(|(side, _)| *side != Side::Initiator);
        }
        if self.killed[1] {
            self.unregistering.retain(|(side, _)| *side != Side::Target);
        }
        Ok(())
    }

    /// The same places once more, both ways, with new bytes: each must succeed at the first try.
    fn next_calls(&mut self) -> Result<(), String> {
        let again: Vec<Planned> = self.plan.transfers.iter().take(NEXT).cloned().collect();
        for (nth, planned) in again.iter().enumerate() {
            for write in [planned.write, !planned.write] {
                let id = NEXT_NUMBER + 2 * nth as u8 + u8::from(write);
                self.arrange_one(id, planned, write)?;
                self.began = Instant::now();
                self.start_one(id, planned, write, None)?;
                let before = self.tally.failed.clone();
                while self.pending.contains(&id) {
                    self.hear(Duration::from_millis(5))?;
                    self.see_who_died()?;
                    if self.began.elapsed() > Duration::from_millis(LIMITS.progress) + self.slack() {
                        return Err(format!("the next call ({id}) does not end"));
                    }
                }
                if self.tally.failed != before {
                    let told = self.tally.failed.keys().last().cloned().unwrap_or_default();
                    return Err(format!("the next call ({id}) failed: {told}"));
                }
            }
        }
        self.judge_all()
    }

    fn note_failure(&mut self, refusal: &Refusal, next: bool) {
        // Behind every code that is.
        let key = if next {
            format!("~ {}", refusal.text)
        } else {
            format!("{} ({})", refusal.code, refusal.stage)
        };
        *self.tally.failed.entry(key.clone()).or_default() += 1;
        self.tally.samples.entry(key).or_insert_with(|| refusal.text.clone());
    }
}
