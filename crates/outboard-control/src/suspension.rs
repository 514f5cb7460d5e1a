//! Suspending a worker: what the supervisor has another process do to it.

/// What to do to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Move its memory to the host and free it on the device.
    Suspend,
    /// Move it back.
    Resume,
}

impl Action {
    /// As the helper's command line has it.
    pub fn name(self) -> &'static str {
        match self {
            Action::Suspend => "suspend",
            Action::Resume => "resume",
        }
    }
}

impl std::str::FromStr for Action {
    type Err = String;

    fn from_str(text: &str) -> Result<Action, String> {
        [Action::Suspend, Action::Resume]
            .into_iter()
            .find(|action| action.name() == text)
            .ok_or_else(|| format!("`{text}` is neither suspend nor resume"))
    }
}
