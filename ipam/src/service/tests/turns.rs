//! Threads that take turns, one request at a time, and what becomes of each request.

use std::cell::RefCell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::service) enum Fate {
    Made,
    /// It is made, and nobody is told.
    Lost,
    /// It is made when the server's `land` is called.
    Late,
    /// The server cannot be reached.
    Away,
    /// It is made, and the process ends before the answer comes.
    Killed,
    /// It is made when `land` is called, and from now on the server cannot be reached.
    Cut,
    /// It is made after what a rival does.
    Beaten,
}

/// What a thread is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::service) enum Next {
    Read,
    Write,
    /// It waits for what others do.
    Pause,
    /// It is at its end.
    Nothing,
}

pub(in crate::service) struct Turns {
    state: Mutex<State>,
    /// Notified when it is a thread's turn.
    turned: Vec<Condvar>,
    /// Notified when a thread waits or has ended.
    waiting: Condvar,
}

struct State {
    /// What each thread does next, unless it is busy, and what becomes of that.
    threads: Vec<(Option<Next>, Fate)>,
    /// From then on nobody waits, and no request is made.
    is_over: bool,
}

thread_local! {
    static OWN: RefCell<Option<(Arc<Turns>, usize)>> = const { RefCell::new(None) };
}

/// Waits for the turn of this thread, and returns what becomes of its request; `None` in a thread that takes no turns.
pub(in crate::service) fn take(next: Next) -> Option<Fate> {
    OWN.with_borrow(|own| own.as_ref().map(|(turns, place)| turns.wait(*place, next)))
}

impl Turns {
    pub(in crate::service) fn new(count: usize) -> Arc<Self> {
        let state = State {
            threads: vec![(None, Fate::Made); count],
            is_over: false,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            turned: (0..count).map(|_| Condvar::new()).collect(),
            waiting: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a thread, which waits before its first request.
    pub(in crate::service) fn start<'scope>(
        self: &Arc<Self>,
        scope: &'scope Scope<'scope, '_>,
        place: usize,
        act: impl FnOnce() + Send + 'scope,
    ) -> ScopedJoinHandle<'scope, ()> {
        let turns = Arc::clone(self);
        scope.spawn(move || {
            let _end = ThreadEnd(Arc::clone(&turns), place);
            OWN.set(Some((turns, place)));
            act();
        })
    }

    fn wait(&self, place: usize, next: Next) -> Fate {
        let mut state = self.lock();
        state.threads[place].0 = Some(next);
        self.waiting.notify_one();
        let has_to_wait = |state: &mut State| !state.is_over && state.threads[place].0.is_some();
        let state = self.turned[place].wait_while(state, has_to_wait).unwrap();
        if state.is_over {
            return Fate::Away;
        }
        state.threads[place].1
    }

    /// Waits until no thread is busy; returns what each does next.
    pub(in crate::service) fn next(&self) -> Vec<Next> {
        let is_busy = |state: &mut State| state.threads.iter().any(|(next, _)| next.is_none());
        let state = self.waiting.wait_while(self.lock(), is_busy).unwrap();
        state.threads.iter().filter_map(|(next, _)| *next).collect()
    }

    /// Lets a thread make its request, and waits until it is about to make another one.
    pub(in crate::service) fn go(&self, place: usize, fate: Fate) {
        self.lock().threads[place] = (None, fate);
        self.turned[place].notify_one();
        self.next();
    }

    /// Ends the turns when it is dropped.
    pub(in crate::service) fn until_dropped(&self) -> End<'_> {
        End(self)
    }

    pub(in crate::service) fn is_over(&self) -> bool {
        self.lock().is_over
    }
}

pub(in crate::service) struct End<'a>(&'a Turns);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.turned.iter().for_each(Condvar::notify_one);
    }
}

/// Says that a thread has ended, also by a panic.
struct ThreadEnd(Arc<Turns>, usize);

impl Drop for ThreadEnd {
    fn drop(&mut self) {
        OWN.set(None);
        self.0.lock().threads[self.1].0 = Some(Next::Nothing);
        self.0.waiting.notify_one();
    }
}

/// One history after the other, until every choice was made in every way.
#[derive(Default)]
pub(in crate::service) struct Choices {
    /// What was chosen, of how many.
    made: Vec<(usize, usize)>,
    /// How many were made in this history.
    at: usize,
}

impl Choices {
    pub(in crate::service) fn choose(&mut self, among: usize) -> usize {
        if self.at == self.made.len() {
            self.made.push((0, among));
        }
        let (chosen, before) = self.made[self.at];
        assert_eq!(before, among, "a history is the same when its choices are");
        self.at += 1;
        chosen
    }

    /// Begins the next history; returns false after the last one.
    pub(in crate::service) fn begin_next(&mut self) -> bool {
        self.at = 0;
        while let Some((chosen, among)) = self.made.pop() {
            if chosen + 1 < among {
                self.made.push((chosen + 1, among));
                return true;
            }
        }
        false
    }

    /// Returns the choices of this history that were not the first.
    pub(in crate::service) fn unusual(&self) -> Vec<(usize, usize)> {
        let made = self.made.iter().enumerate();
        made.filter(|(_, (chosen, _))| *chosen > 0)
            .map(|(at, (chosen, _))| (at, *chosen))
            .collect()
    }
}
