//! What a format fixes for every provider that speaks it.

use crate::{
    config::profile::{Acceptance, PastReasoning, Profile},
    conversation::Format,
};

impl Format {
    /// Whether servers may demand that user and assistant take turns. Those of Messages make one message of adjacent entries,
    /// and in Responses an answer has many.
    pub const fn may_alternate(self) -> bool {
        !matches!(self, Self::Messages | Self::Responses)
    }

    /// Whether the parts of an answer are entries of their own, so that answers in a row are taken for one.
    pub const fn joins_answers(self) -> bool {
        matches!(self, Self::Responses)
    }

    /// Whether clients say where they run in a user entry of its own, and what is to be done in one behind it.
    pub const fn states_task_apart(self) -> bool {
        matches!(self, Self::Responses)
    }

    /// Whether a result may stand apart from its call.
    pub(crate) const fn pairs_apart(self) -> bool {
        matches!(self, Self::Responses)
    }

    /// Whether the server runs a program anew with the results of its calls, until the program's own output is there.
    pub(crate) const fn replays_programs(self) -> bool {
        matches!(self, Self::Responses)
    }

    /// Whether the model never reads the results of calls that a program made: Anthropic gives them to the container, and
    /// counts them nowhere (<https://platform.claude.com/docs/en/agents-and-tools/tool-use/programmatic-tool-calling>).
    pub(crate) const fn hides_program_results(self) -> bool {
        matches!(self, Self::Messages)
    }

    /// Whether a provider may refuse entries for the roles that stand side by side. In Responses nothing alternates.
    pub(crate) const fn pairs_roles(self) -> bool {
        !matches!(self, Self::Responses)
    }

    /// A profile is written for chat completions. This is what it becomes in the grammar of the format.
    pub fn refine_profile(self, profile: Profile) -> Profile {
        let profile = Profile {
            tools_entry: profile
                .tools_entry
                .filter(|it| self.takes_tools_entry(*it, &profile)),
            ..profile
        };
        match self {
            Self::Messages => Profile {
                user_after_tool: Acceptance::Merged,
                adjacent_users: Acceptance::Merged,
                system_later: Acceptance::Yes,
                begins_with_user: true,
                ..profile
            },
            Self::Responses => Profile {
                user_after_tool: Acceptance::Yes,
                adjacent_users: Acceptance::Yes,
                system_later: Acceptance::Yes,
                system_prompts: false,
                // A stream begins before the model reads the prompt, and then says that it failed.
                errors_inside: true,
                ..profile
            },
            _ => Profile {
                system_prompts: false,
                ..profile
            },
        }
    }

    /// Whether a request of this format may have an entry that brings tools, where the provider takes it in requests of
    /// format `taken`. A provider that refused a prompt of its own behind a result refuses that too.
    fn takes_tools_entry(self, taken: Self, profile: &Profile) -> bool {
        self == taken
            && profile.past_reasoning != PastReasoning::Read
            && profile.user_after_tool != Acceptance::No
            // In Messages the entry is the system's.
            && (profile.system_prompts || self != Self::Messages)
    }
}
