//! The parent's part: starts the workers, hands requests on, gathers what they report.

use std::collections::HashMap;
use std::io::BufReader;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use indicatif::HumanBytes;

use crate::demo::messages::{self, Event, Job, Moved, Role, Setup};
use crate::demo::program::Program;
use crate::demo::trace::Request;
use crate::failure::Failure;
use crate::output::progress;

/// Requests between their first and last step at once: one is compared while the next is made and pushed.
const IN_FLIGHT: usize = 2;
/// No worker is silent for so long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a replay came to.
pub(super) struct Outcome {
    pub(super) requests: u64,
    /// Blocks of all prompts, and those of them that decode had.
    pub(super) blocks: u64,
    pub(super) reused: u64,
    pub(super) moved: Moved,
    /// Bytes hashed at the decode side.
    pub(super) compared: u64,
    /// From the first request's start to the last one's end.
    pub(super) wall: Duration,
    /// Nanoseconds a request: in transfers, and from start to compared.
    pub(super) transfer: Histogram<u64>,
    pub(super) whole: Histogram<u64>,
    /// Ended by the time limit, with requests left.
    pub(super) cut_short: bool,
}

pub(super) fn replay(
    program: &Program,
    setup: &Setup,
    requests: &[Request],
    limit: Duration,
    quiet: bool,
) -> Result<Outcome, Failure> {
    let (events, inbox) = mpsc::channel();
    let mut decode = Worker::start(program, Side::Decode, &Role::Decode { setup: setup.clone() }, &events)?;
    let mut prefill =
        Worker::start(program, Side::Prefill, &Role::Prefill { setup: setup.clone() }, &events)?;
    prefill.tell(&Job::Connect { decode: both_ready(&inbox, quiet)? })?;
    let bar =
        progress(requests.len() as u64, "{elapsed_precise} [{bar:40}] {pos}/{len} requests, {msg}", quiet);
    let mut router = Router::new(requests);
    let outcome = router.run(&mut prefill, &mut decode, &inbox, limit, |moved, elapsed| {
        bar.inc(1);
        let rate = moved.bytes as f64 / elapsed.as_secs_f64().max(1e-9);
        bar.set_message(format!("{} moved, {}/s", HumanBytes(moved.bytes), HumanBytes(rate as u64)));
    });
    bar.finish_and_clear();
    outcome?;
    prefill.stop()?;
    decode.stop()?;
    Ok(router.outcome)
}

/// Waits until both have their pools; decode's session.
fn both_ready(inbox: &Receiver<(Side, Option<Event>)>, quiet: bool) -> Result<String, Failure> {
    let bar = progress(2, "{elapsed_precise} preparing the pools", quiet);
    let mut sessions = HashMap::new();
    while sessions.len() < 2 {
        match next(inbox)? {
            (side, Event::Ready { session }) => sessions.insert(side, session),
            (side, other) => return Err(unexpected(side, &other)),
        };
    }
    bar.finish_and_clear();
    Ok(sessions.remove(&Side::Decode).unwrap_or_default())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Side {
    Prefill,
    Decode,
}

impl Side {
    fn as_str(self) -> &'static str {
        match self {
            Side::Prefill => "prefill",
            Side::Decode => "decode",
        }
    }
}

/// One process. Killed if it is still there when this is dropped.
struct Worker {
    side: Side,
    child: Child,
    jobs: Option<ChildStdin>,
}

impl Worker {
    fn start(
        program: &Program,
        side: Side,
        role: &Role,
        events: &Sender<(Side, Option<Event>)>,
    ) -> Result<Self, Failure> {
        let cannot = |error| Failure::failed(format!("cannot start the {} process: {error}", side.as_str()));
        let mut command = program.command();
        command.arg("demo-worker").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(cannot)?;
        let output = child.stdout.take().expect("invariant: the output is piped");
        let jobs = child.stdin.take();
        let mut worker = Worker { side, child, jobs };
        let events = events.clone();
        thread::spawn(move || {
            let mut output = BufReader::new(output);
            loop {
                let event = match messages::receive::<Event>(&mut output) {
                    Ok(event) => event,
                    Err(failure) => Some(Event::Failed { what: failure.to_string() }),
                };
                let ended = event.is_none();
                if events.send((side, event)).is_err() || ended {
                    return;
                }
            }
        });
        worker.tell(role)?;
        Ok(worker)
    }

    fn tell(&mut self, message: &impl serde::Serialize) -> Result<(), Failure> {
        let Some(jobs) = &mut self.jobs else { return Ok(()) };
        // Not a reader that left, but a worker that died: the pipe says no more than that.
        messages::send(jobs, message)
            .map_err(|_| Failure::failed(format!("the {} process ended", self.side.as_str())))
    }

    /// Lets it end by itself.
    fn stop(&mut self) -> Result<(), Failure> {
        self.jobs = None;
        let ended = self.child.wait();
        match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => {
                Err(Failure::failed(format!("the {} process ended with {status}", self.side.as_str())))
            }
            Err(error) => Err(Failure::failed(format!("cannot wait for {}: {error}", self.side.as_str()))),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.jobs.take().is_some() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

struct Router<'a> {
    requests: &'a [Request],
    issued: usize,
    started: HashMap<u64, Instant>,
    outcome: Outcome,
}

impl<'a> Router<'a> {
    fn new(requests: &'a [Request]) -> Self {
        let outcome = Outcome {
            requests: 0,
            blocks: 0,
            reused: 0,
            moved: Moved::default(),
            compared: 0,
            wall: Duration::ZERO,
            transfer: histogram(),
            whole: histogram(),
            cut_short: false,
        };
        Self { requests, issued: 0, started: HashMap::new(), outcome }
    }

    fn run(
        &mut self,
        prefill: &mut Worker,
        decode: &mut Worker,
        inbox: &Receiver<(Side, Option<Event>)>,
        limit: Duration,
        done: impl Fn(&Moved, Duration),
    ) -> Result<(), Failure> {
        let begun = Instant::now();
        loop {
            while self.started.len() < IN_FLIGHT
                && self.issued < self.requests.len()
                && begun.elapsed() < limit
            {
                let request = self.issued as u64;
                let blocks = self.requests[self.issued].hash_ids.clone();
                self.started.insert(request, Instant::now());
                self.issued += 1;
                decode.tell(&Job::Prepare { request, blocks })?;
            }
            if self.started.is_empty() {
                break;
            }
            match next(inbox)? {
                (Side::Decode, Event::Prepared { request, wanted }) => {
                    let blocks = self.blocks(request)?.to_vec();
                    self.outcome.blocks += blocks.len() as u64;
                    self.outcome.reused += (blocks.len() - wanted.len().min(blocks.len())) as u64;
                    prefill.tell(&Job::Push { request, blocks, wanted })?;
                }
                (Side::Prefill, Event::Pushed { moved, .. }) => self.add(moved),
                (Side::Decode, Event::Verified { request, compared }) => {
                    let Some(started) = self.started.remove(&request) else {
                        return Err(Failure::failed(format!("decode verified request {request} twice")));
                    };
                    self.outcome.whole.saturating_record(started.elapsed().as_nanos() as u64);
                    self.outcome.requests += 1;
                    self.outcome.compared += compared;
                    done(&self.outcome.moved, begun.elapsed());
                }
                (Side::Decode, Event::Differs { request, what }) => {
                    return Err(Failure::failed(format!("VERIFICATION FAILED: request {request}: {what}"))
                        .fix("bytes that were reported as moved are not what was sent: please report this"));
                }
                (side, event) => return Err(unexpected(side, &event)),
            }
        }
        self.outcome.wall = begun.elapsed();
        self.outcome.cut_short = self.issued < self.requests.len();
        // Decode may have heard of the last bytes before prefill could report them.
        while self.outcome.transfer.len() < self.outcome.requests {
            match next(inbox)? {
                (Side::Prefill, Event::Pushed { moved, .. }) => self.add(moved),
                (side, event) => return Err(unexpected(side, &event)),
            }
        }
        Ok(())
    }

    fn blocks(&self, request: u64) -> Result<&[u64], Failure> {
        let found = usize::try_from(request).ok().and_then(|index| self.requests.get(index));
        found
            .map(|request| request.hash_ids.as_slice())
            .ok_or_else(|| Failure::failed(format!("a worker names request {request}, which there is not")))
    }

    fn add(&mut self, moved: Moved) {
        let total = &mut self.outcome.moved;
        total.bytes += moved.bytes;
        total.entries += moved.entries;
        total.batches += moved.batches;
        total.nanos += moved.nanos;
        self.outcome.transfer.saturating_record(moved.nanos);
    }
}

fn next(inbox: &Receiver<(Side, Option<Event>)>) -> Result<(Side, Event), Failure> {
    match inbox.recv_timeout(PATIENCE) {
        Ok((side, Some(event))) => Ok((side, event)),
        Ok((side, None)) => Err(Failure::failed(format!("the {} process ended", side.as_str()))),
        Err(_) => Err(Failure::failed(format!("nothing happened for {} s", PATIENCE.as_secs()))),
    }
}

fn unexpected(side: Side, event: &Event) -> Failure {
    match event {
        Event::Failed { what } => Failure::failed(what.clone()),
        other => Failure::failed(format!("the {} process says {other:?} out of turn", side.as_str())),
    }
}

/// 1 us to 1 hour, three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1000, 3_600_000_000_000, 3).expect("invariant: the bounds are in order")
}
