//! What a provider accepts, in the grammar of a format.

use crate::{
    config::profile::{Acceptance, PastReasoning, Profile},
    conversation::{Author, Format},
};

impl Format {
    /// Adapts a profile, which is written for chat completions, to the grammar of this format.
    pub fn refine_profile(self, profile: Profile) -> Profile {
        let profile = Profile {
            tools_entry: profile
                .tools_entry
                .filter(|it| self.takes_tools_entry(*it, &profile)),
            ..profile
        };
        let chat = |profile| Profile {
            system_prompts: false,
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
            Self::Chat => chat(profile),
            #[cfg(test)]
            Self::Toy => chat(profile),
        }
    }

    /// Whether a request of this format may have an entry that brings tools. `taken`: the format in which the provider
    /// takes such an entry. A provider that refuses a prompt in an entry of its own behind a result refuses this entry
    /// too.
    fn takes_tools_entry(self, taken: Self, profile: &Profile) -> bool {
        self == taken
            && profile.past_reasoning != PastReasoning::Read
            && profile.user_after_tool != Acceptance::No
            && (profile.system_prompts || self.rules().tools_entry_author != Some(Author::System))
    }
}
