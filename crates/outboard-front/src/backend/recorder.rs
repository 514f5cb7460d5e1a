//! A back end for tests of the front: it does nothing and records the calls.

use std::any::Any;
use std::collections::HashMap;
use std::fmt::{self, Display};
use std::os::fd::OwnedFd;

use crate::backend::{DevicePtr, UnifiedPtr};
use outboard_abi::CUresult;
use outboard_wire::files::FileOpening;
use outboard_wire::platform::{KernelInfo, Platform};
use parking_lot::Mutex;

use super::{
    ArrayDescriptor, DeviceId, Instantiated, MemoryKind, ObjectId, ReferenceSetting, Result,
    SparseProperties, Split, Statistics, Updated,
};
use crate::generated::recorder::METHODS;

/// A call: the method, and its arguments as [`fmt::Debug`] shows them, each with its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Call {
    pub(crate) method: &'static str,
    pub(crate) arguments: String,
}

impl Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.method, self.arguments)
    }
}

/// The result of a method unless a test sets another one.
#[diagnostic::on_unimplemented(
    message = "`Recorder` has no answer of the type `{Self}`: backend/recorder.rs gives each type one"
)]
pub(crate) trait Answer: Sized + 'static {
    /// `fresh` is a number that no answer had before.
    fn plausible(fresh: &mut Fresh) -> Self;
}

/// Numbers that are good as addresses: multiples of 4096, and each only once.
#[derive(Default)]
pub(crate) struct Fresh(u64);

impl Fresh {
    fn next(&mut self) -> u64 {
        self.0 += 1;
        self.0 << 12
    }
}

#[derive(Default)]
struct State {
    calls: Vec<Call>,
    /// Method, which of its calls fails (from 1 on), with what.
    failures: Vec<(&'static str, usize, CUresult)>,
    /// By method: a function `Fn() -> T`, where `T` is what it answers.
    answers: HashMap<&'static str, Box<dyn Any + Send>>,
    fresh: Fresh,
}

type Make<T> = Box<dyn Fn() -> T + Send>;

/// The back end.
#[derive(Default)]
pub(crate) struct Recorder(Mutex<State>);

impl Recorder {
    /// A new one, for a process of its own.
    pub(crate) fn leak() -> &'static Recorder {
        Box::leak(Box::default())
    }

    /// As [`Recorder::leak`], with numbers of its own: no address of it is another's.
    pub(crate) fn leak_apart(place: u64) -> &'static Recorder {
        let recorder = Recorder::leak();
        recorder.0.lock().fresh.0 = place << 32;
        recorder
    }

    /// The calls, in order.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.0.lock().calls.clone()
    }

    /// The `nth` call of a method, from 1 on, fails with `error`; those before count, too.
    pub(crate) fn fail(&self, method: &str, nth: usize, error: CUresult) {
        self.0.lock().failures.push((known(method), nth, error));
    }

    /// From now on the method answers this.
    pub(crate) fn answer_with<T: Answer + Clone + Send>(&self, method: &str, answer: T) {
        let make: Make<T> = Box::new(move || answer.clone());
        self.0.lock().answers.insert(known(method), Box::new(make));
    }

    /// The body of generated methods that can fail.
    pub(crate) fn outcome<T: Answer>(
        &self,
        method: &'static str,
        arguments: fmt::Arguments<'_>,
    ) -> Result<T> {
        let mut state = self.0.lock();
        state.note(method, arguments);
        let count = state.calls.iter().filter(|call| call.method == method).count();
        match state.failures.iter().find(|(name, nth, _)| (*name, *nth) == (method, count)) {
            Some((_, _, error)) => Err(*error),
            None => Ok(state.answer(method)),
        }
    }

    /// What the others do.
    pub(crate) fn answer<T: Answer>(
        &self,
        method: &'static str,
        arguments: fmt::Arguments<'_>,
    ) -> T {
        let mut state = self.0.lock();
        state.note(method, arguments);
        state.answer(method)
    }
}

impl State {
    fn note(&mut self, method: &'static str, arguments: fmt::Arguments<'_>) {
        self.calls.push(Call { method, arguments: arguments.to_string() });
    }

    fn answer<T: Answer>(&mut self, method: &'static str) -> T {
        let Some(make) = self.answers.get(method) else { return T::plausible(&mut self.fresh) };
        let make = make.downcast_ref::<Make<T>>();
        make.unwrap_or_else(|| {
            panic!("{method} answers a {}, and was told something else", std::any::type_name::<T>())
        })()
    }
}

/// The method of that name.
fn known(method: &str) -> &'static str {
    METHODS
        .into_iter()
        .find(|known| *known == method)
        .unwrap_or_else(|| panic!("a back end has no method {method}"))
}

macro_rules! answers {
    ($($ty:ty => $answer:expr;)*) => {
        $(impl Answer for $ty {
            fn plausible(_: &mut Fresh) -> $ty {
                $answer
            }
        })*
    };
}

answers! {
    () => ();
    (u32, String) => (22809, String::new());
    (u32, String, Vec<u8>) => (0, String::new(), vec![0; 128]);
    Option<Vec<u8>> => None;
    Option<String> => None;
    bool => false;
    i32 => 0;
    u32 => 0;
    f32 => 0.0;
    FileOpening => FileOpening::NothingShared {};
    DeviceId => DeviceId::new(0);
    ArrayDescriptor => ArrayDescriptor::default();
    Instantiated => Instantiated { status: CUresult::CUDA_SUCCESS, result: 0, node: 0, handle: 0 };
    KernelInfo => KernelInfo::default();
    MemoryKind => MemoryKind { device: DeviceId::new(0), handle_types: 0, compression: 0, usage: 0 };
    OwnedFd => std::fs::File::open("/dev/null").expect("there is /dev/null").into();
    Platform => Platform::default();
    ReferenceSetting => ReferenceSetting::Array(ObjectId::NONE, 0);
    SparseProperties => SparseProperties::default();
    Split => Split::default();
    Statistics => Statistics::Unused {};
    Updated => Updated { status: CUresult::CUDA_SUCCESS, result: 0, node: 0, from: 0 };
}

impl Answer for u64 {
    fn plausible(fresh: &mut Fresh) -> u64 {
        fresh.next()
    }
}

impl Answer for DevicePtr {
    fn plausible(fresh: &mut Fresh) -> DevicePtr {
        DevicePtr(fresh.next())
    }
}

impl Answer for UnifiedPtr {
    fn plausible(fresh: &mut Fresh) -> UnifiedPtr {
        UnifiedPtr(fresh.next())
    }
}

impl Answer for *mut u8 {
    /// Memory that may be written: the method does not say how much there is to be.
    fn plausible(_: &mut Fresh) -> *mut u8 {
        Box::leak(vec![0u8; 1 << 16].into_boxed_slice()).as_mut_ptr()
    }
}

impl<T: 'static> Answer for Vec<T> {
    fn plausible(_: &mut Fresh) -> Vec<T> {
        Vec::new()
    }
}

impl<const N: usize> Answer for [u8; N] {
    fn plausible(_: &mut Fresh) -> [u8; N] {
        [0; N]
    }
}

impl<A: Answer, B: Answer> Answer for (A, B) {
    fn plausible(fresh: &mut Fresh) -> (A, B) {
        (A::plausible(fresh), B::plausible(fresh))
    }
}

impl<A: Answer, B: Answer, C: Answer> Answer for (A, B, C) {
    fn plausible(fresh: &mut Fresh) -> (A, B, C) {
        (A::plausible(fresh), B::plausible(fresh), C::plausible(fresh))
    }
}

mod tests;
