//! The queue of clients that wait for admission, and the messages that they get meanwhile.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use jiff::Timestamp;
use outboard_pool::words::LeaseNumber;
use outboard_wire::handshake::{Refusal, RefusalCode, VERSION, Waiting};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::Config;
use super::admission::{Admission, Come, Held, Policy, Request, Verdict};
use crate::pool::Holding;

/// A client that waits is told of it again after this time at the latest.
const TOLD_AGAIN_AFTER: Duration = Duration::from_secs(3);
/// A client that does not receive a message within this time is gone.
const TOLD_WITHIN: Duration = Duration::from_secs(10);
/// A client has no place only after so long, ...
const SETTLED_AFTER: Duration = Duration::from_millis(300);
/// ... as sessions that have just ended on the client's machine may not have ended here. While any
/// of them is ending, it may take so long.
const ENDED_WITHIN: Duration = Duration::from_secs(5);
/// How often is looked whether any is ending.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// For how long a place is kept for a client that has asked for it and comes back.
const PLACE_KEPT_FOR: Duration = Duration::from_secs(30);

/// Places that are kept for one holder.
const MOST_KEPT: usize = 2;

/// Admitted and waiting clients.
#[derive(Clone)]
pub(crate) struct Queue(Rc<Inner>);

struct Inner {
    admission: RefCell<Admission>,
    /// Places for clients that will come back.
    kept: RefCell<Vec<KeptPlace>>,
    /// Signalled whenever a client has left.
    changed: Notify,
    patience: Option<Duration>,
}

struct KeptPlace {
    number: u64,
    holder: String,
    devices: Vec<u32>,
    memory: u64,
    client: String,
    until: Instant,
    place: Rc<AdmittedPlace>,
    /// The lease by which its client was admitted.
    lease: Option<Rc<Holding>>,
}

/// An admitted client's place, released on drop. Dropped, it is free.
pub(crate) struct AdmittedPlace {
    number: u64,
    queue: Queue,
}

/// Why a client does not get in.
pub(crate) enum Turned {
    Away(Refusal),
    /// It has gone by itself.
    Gone(io::Error),
}

impl std::fmt::Debug for AdmittedPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdmittedPlace").field("number", &self.number).finish_non_exhaustive()
    }
}

impl AdmittedPlace {
    /// The admission that it belongs to.
    pub(crate) fn request(&self) -> Option<Request> {
        self.queue.0.admission.borrow().request(self.number).cloned()
    }
}

impl Drop for AdmittedPlace {
    fn drop(&mut self) {
        self.queue.0.admission.borrow_mut().leave(self.number);
        self.queue.0.changed.notify_waiters();
    }
}

impl Queue {
    pub(crate) fn new(config: &Config, promises: bool) -> Queue {
        let sessions = config.sessions.unwrap_or(usize::MAX);
        let (modes, memory, queue) = (config.modes.clone(), config.memory, config.queue);
        let admission = Admission::new(Policy { modes, sessions, memory, promises, queue });
        let (admission, kept) = (RefCell::new(admission), RefCell::default());
        Queue(Rc::new(Inner { admission, kept, changed: Notify::new(), patience: config.patience }))
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.0.admission.borrow().waiting()
    }

    /// The holders of exclusive devices, on a server with that many devices.
    pub(crate) fn holders(&self, known: usize) -> Vec<Held> {
        self.0.admission.borrow().holders(known)
    }

    /// Lets a client in, at once or in its turn. `may_wait`: it understands that it has to.
    /// `stopping` says why no client is admitted any more, `ends` whether some session is ending:
    /// nobody is refused, or told to wait, for what is about to be free.
    pub(crate) async fn enter(
        &self,
        request: Request,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        may_wait: bool,
        stopping: impl Fn() -> Option<Refusal>,
        ends: impl Fn() -> bool,
    ) -> Result<Rc<AdmittedPlace>, Turned> {
        if let Some(place) = self.take_kept(&request) {
            return Ok(place);
        }
        let come = self.0.admission.borrow_mut().come(request, may_wait, Timestamp::now());
        let Come { number, unless_soon } = come.map_err(Turned::Away)?;
        // From here on, whatever happens to this client, its place is free afterwards.
        let place = Rc::new(AdmittedPlace { number, queue: self.clone() });
        let began = Instant::now();
        let mut told: Option<(Instant, Waiting)> = None;
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            // A client that leaves between the check and the wait must be noticed.
            changed.as_mut().enable();
            let verdict = self.0.admission.borrow_mut().look(number, Timestamp::now());
            let Verdict::Waits { place: ahead, sentence } = verdict else {
                if told.is_some() {
                    // Clients behind it have moved up.
                    self.0.changed.notify_waiters();
                }
                return Ok(place);
            };
            if let Some(refusal) = stopping() {
                return Err(Turned::Away(refusal));
            }
            let is_settled = if ends() {
                began.elapsed() >= ENDED_WITHIN
            } else {
                began.elapsed() >= SETTLED_AFTER
            };
            if !is_settled && told.is_none() {
                tokio::select! {
                    () = changed => {}
                    () = sleep(LOOK_EVERY) => {}
                    turned = gone(stream) => return Err(turned),
                }
                continue;
            }
            if let Some(refusal) = unless_soon {
                return Err(Turned::Away(refusal));
            }
            let left = self.0.patience.map(|patience| patience.saturating_sub(began.elapsed()));
            if left.is_some_and(|left| left.is_zero()) {
                let sentence =
                    format!("after {} seconds in the queue: {sentence}", began.elapsed().as_secs());
                return Err(Turned::Away(Refusal { code: RefusalCode::Busy, sentence }));
            }
            let waiting = Waiting { place: ahead, sentence };
            if told
                .as_ref()
                .is_none_or(|(when, what)| *what != waiting || when.elapsed() >= TOLD_AGAIN_AFTER)
            {
                if told.is_none() {
                    let all = self.0.admission.borrow().waiting();
                    tracing::info!(
                        place = waiting.place,
                        all,
                        reason = waiting.sentence,
                        "a client waits"
                    );
                }
                let message = waiting.encode(VERSION);
                match timeout(TOLD_WITHIN, stream.write_all(&message)).await {
                    Ok(Ok(())) => told = Some((Instant::now(), waiting)),
                    Ok(Err(error)) => return Err(Turned::Gone(error)),
                    Err(_) => return Err(Turned::Gone(io::ErrorKind::TimedOut.into())),
                }
            }
            tokio::select! {
                () = changed => {}
                () = sleep(left.unwrap_or(TOLD_AGAIN_AFTER).min(TOLD_AGAIN_AFTER)) => {}
                turned = gone(stream) => return Err(turned),
            }
        }
    }

    /// Keeps a place that an earlier server has given, even if this one would not give it now.
    pub(crate) fn take_over(&self, request: Request, since: Timestamp) -> Rc<AdmittedPlace> {
        let number = self.0.admission.borrow_mut().go_on(request, since);
        Rc::new(AdmittedPlace { number, queue: self.clone() })
    }

    /// Keeps a place for a while, for a session of the same holder on the same devices; no longer
    /// than the lease is good by which it was admitted.
    pub(crate) fn keep(
        &self,
        request: &Request,
        place: Rc<AdmittedPlace>,
        lease: Option<Rc<Holding>>,
    ) {
        let number = place.number;
        let (holder, devices, memory) =
            (request.holder.clone(), request.devices.clone(), request.memory);
        let surplus = {
            let mut kept = self.0.kept.borrow_mut();
            let own: Vec<usize> = (0..kept.len()).filter(|at| kept[*at].holder == holder).collect();
            let surplus = (own.len() >= MOST_KEPT).then(|| kept.remove(own[0]));
            let (client, until) = (request.client.clone(), Instant::now() + PLACE_KEPT_FOR);
            kept.push(KeptPlace { number, holder, devices, memory, client, until, place, lease });
            surplus
        };
        // Not under the borrow: others are told.
        drop(surplus);
        let queue = self.clone();
        tokio::task::spawn_local(async move {
            sleep(PLACE_KEPT_FOR).await;
            let mut kept = queue.0.kept.borrow_mut();
            let late = kept.iter().position(|one| one.number == number).map(|at| kept.remove(at));
            drop(kept);
            drop(late);
        });
    }

    /// Keeps no place for a lease any more.
    pub(crate) fn keep_none_for(&self, lease: LeaseNumber) {
        let is_of_lease =
            |one: &mut KeptPlace| one.lease.as_ref().is_some_and(|held| held.number() == lease);
        let given_up: Vec<KeptPlace> =
            self.0.kept.borrow_mut().extract_if(.., is_of_lease).collect();
        // Not under the borrow: others are told.
        drop(given_up);
    }

    /// Places that are kept: for whom, on which devices, and for how long yet.
    pub(crate) fn each_kept(&self, mut look: impl FnMut(&str, &[u32], Duration)) {
        for one in self.0.kept.borrow().iter() {
            look(&one.client, &one.devices, one.until.saturating_duration_since(Instant::now()));
        }
    }

    fn take_kept(&self, request: &Request) -> Option<Rc<AdmittedPlace>> {
        let mut kept = self.0.kept.borrow_mut();
        let at = kept.iter().position(|one| {
            one.holder == request.holder
                && one.devices == request.devices
                && one.memory == request.memory
        })?;
        let place = kept.remove(at).place;
        self.0.admission.borrow_mut().rename(place.number, &request.client);
        Some(place)
    }
}

/// Waits until a client that waits has gone, or says something.
async fn gone(stream: &mut (impl AsyncRead + Unpin)) -> Turned {
    let mut byte = [0; 1];
    match stream.read(&mut byte).await {
        Ok(0) => Turned::Gone(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => {
            let sentence = "a client that waits to be let in has nothing to say".to_owned();
            Turned::Away(Refusal { code: RefusalCode::BadHello, sentence })
        }
        Err(error) => Turned::Gone(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(holder: &str, memory: u64) -> Request {
        Request {
            holder: holder.to_owned(),
            owner: holder.to_owned(),
            owner_sessions: None,
            devices: vec![0],
            memory,
            exclusive: Vec::new(),
            client: String::new(),
        }
    }

    /// Asks to be let in, without being willing to wait.
    async fn comes(queue: &Queue, holder: &str, memory: u64) -> Option<Rc<AdmittedPlace>> {
        let (mut stream, _other) = tokio::io::duplex(64);
        queue.enter(request(holder, memory), &mut stream, false, || None, || false).await.ok()
    }

    #[test]
    fn few_places_are_kept_for_a_while_and_for_what_they_were_asked_for() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let queue = Queue::new(&Config { sessions: Some(3), ..Config::default() }, true);
            let mut places = Vec::new();
            for _ in 0..3 {
                places.push(comes(&queue, "a", 5).await.expect("there is room"));
            }
            places.into_iter().for_each(|place| queue.keep(&request("a", 5), place, None));
            // The first of three was given up for the third.
            assert_eq!(queue.0.kept.borrow().len(), MOST_KEPT);
            let other = comes(&queue, "b", 5).await.expect("one place is free");
            assert!(
                comes(&queue, "b", 5).await.is_none(),
                "those that are kept are not for others"
            );
            assert!(comes(&queue, "a", 6).await.is_none(), "nor for more than was asked for");
            let own = comes(&queue, "a", 5).await.expect("its own");
            sleep(PLACE_KEPT_FOR + Duration::from_secs(1)).await;
            assert!(queue.0.kept.borrow().is_empty(), "who does not come back loses it");
            let third = comes(&queue, "b", 5).await.expect("it is free again");
            assert!(comes(&queue, "c", 5).await.is_none());
            drop((other, own, third));
        });
    }

    #[test]
    fn nobody_is_refused_for_what_is_about_to_be_free() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let queue = Queue::new(&Config { sessions: Some(1), ..Config::default() }, true);
            let ends = std::cell::Cell::new(true);
            let comes = async || {
                let (mut stream, _other) = tokio::io::duplex(64);
                let ends = || ends.get();
                queue.enter(request("b", 5), &mut stream, false, || None, ends).await.ok()
            };
            let first = comes().await.expect("there is room");
            let leaves = async {
                sleep(ENDED_WITHIN / 2).await;
                drop(first);
            };
            let (next, ()) = tokio::join!(comes(), leaves);
            let next = next.expect("the first one was ending");
            assert!(comes().await.is_none(), "it takes too long");
            ends.set(false);
            assert!(comes().await.is_none(), "nobody is ending");
            drop(next);
        });
    }
}
