//! Fills the gap between two of the client's messages with prompts, tools and whole tool rounds.

use std::borrow::Cow;

use crate::{
    conversation::{Author, Conversation, Format, NewItems, edit::Edits},
    guard::{
        grammar::{
            outline::OutlineItem,
            prompt_placement::{self, LABEL, PromptPlacement},
        },
        inject::{
            injected_rounds,
            injections::{InjectedMessage, InjectionContent, ToolSet},
        },
        request::view::RequestView,
    },
    json::text::{self, TextSizes},
};

#[derive(Default)]
pub(in crate::guard) struct GapPart<'a> {
    insertions: Vec<Insertion<'a>>,
    pub(in crate::guard) items: Vec<OutlineItem>,
}

/// What inserts one record.
struct Insertion<'a> {
    edits: Edits,
    /// A tool round that is inserted with its reasoning.
    round: Option<ReasonedRound<'a>>,
}

/// A tool round whose reasoning may still turn out to be stale.
struct ReasonedRound<'a> {
    /// Its number in the gap.
    number: u32,
    /// The index of the message behind which it is inserted.
    behind: usize,
    messages: &'a [InjectedMessage],
}

impl GapPart<'_> {
    /// The edits that insert the records. `is_stale`: whether the reasoning of the round with this number is left out.
    pub(in crate::guard) fn make_edits(
        &self,
        conversation: &Conversation,
        is_stale: impl Fn(u32) -> bool,
    ) -> Edits {
        let mut edits = Edits::default();
        for insertion in &self.insertions {
            match &insertion.round {
                Some(round) if is_stale(round.number) => {
                    let entries = write_round(conversation.format, round.messages, true);
                    let new = NewItems {
                        entries: &entries,
                        blocks: None,
                    };
                    conversation.insert_after(round.behind, &new, &mut edits);
                }
                _ => edits.merge(insertion.edits.clone()),
            }
        }
        edits
    }
}

/// The messages of a tool round as entries of a list.
fn write_round(format: Format, messages: &[InjectedMessage], drops_reasoning: bool) -> String {
    let json = messages.iter().map(|message| {
        if drops_reasoning && message.by.is_model() {
            format.without_reasoning(&message.json)
        } else {
            Cow::Borrowed(&*message.json)
        }
    });
    let json: Vec<Cow<'_, str>> = json.collect();
    let json: Vec<&str> = json.iter().map(|json| &**json).collect();
    format.write_entries(&json)
}

/// Everything injected between two messages.
#[derive(Default)]
pub(in crate::guard) struct GapContents<'a> {
    /// What is inserted directly behind the message before the gap, before the system messages that follow it.
    pub(in crate::guard) prompts: GapPart<'a>,
    /// What is inserted behind those system messages: everything from the first answer on, which was made after them.
    pub(in crate::guard) turns: GapPart<'a>,
    /// Raw tokens.
    pub(in crate::guard) tokens: u32,
    /// Text added at the end of the tool result before the gap.
    pub(in crate::guard) block: TextSizes,
    /// The tools in an entry among the injected messages.
    pub(in crate::guard) tools: ToolSet,
    /// Whether a round is among the injected messages.
    pub(in crate::guard) round: bool,
    /// Digests of the blocks of the rounds, see [`injected_rounds::InjectedRound::blocks`]; also of dropped rounds, whose
    /// blocks must not be sent next to those of the last answer either.
    pub(in crate::guard) blocks: Vec<u128>,
    /// Records that could not be added.
    pub(in crate::guard) left_out: usize,
}

/// The gap between two messages while it is filled.
pub(in crate::guard) struct Gap<'a> {
    view: RequestView<'a>,
    /// The index of the message before the gap.
    before: usize,
    /// An answer is among the injected messages.
    is_answered: bool,
    /// The author of the message after the gap.
    next: Option<Author>,
    /// The author of the last injected message; `None` before any.
    last: Option<Author>,
    pub(in crate::guard) between: GapContents<'a>,
}

impl<'a> Gap<'a> {
    pub(in crate::guard) fn new(
        view: RequestView<'a>,
        before: usize,
        answer: Option<usize>,
    ) -> Self {
        Self {
            view,
            before,
            is_answered: false,
            next: answer.map(|answer| view.item(answer).author),
            last: None,
            between: GapContents::default(),
        }
    }

    /// Adds a prompt, tools or a tool round, which gets this number. `drops_reasoning`: the reasoning of the round is stale and
    /// is left out. Returns whether it could be added: it must follow a user message or a tool result.
    pub(in crate::guard) fn add_content(
        &mut self,
        what: &'a InjectionContent,
        round: u32,
        drops_reasoning: bool,
    ) -> bool {
        let before = self.view.item(self.before).author;
        let (conversation, profile) = (self.view.conversation, self.view.policy.profile);
        match what {
            InjectionContent::Round(messages) if before == Author::User || before.is_tool() => {
                !prompt_placement::is_server_at_work(conversation, self.before)
                    && self.add_round(messages, round, drops_reasoning)
            }
            InjectionContent::Prompt(text) => {
                prompt_placement::find_prompt_placement(conversation, self.before, profile)
                    .is_some_and(|place| self.add_prompt(text, place))
            }
            InjectionContent::Tools { set, json } => self.add_tools(*set, json),
            _ => false,
        }
    }

    /// Adds an entry with tools. It adds no tokens: tools are counted with the list of tools, wherever they are sent.
    fn add_tools(&mut self, set: ToolSet, json: &str) -> bool {
        let view = self.view;
        let format = view.conversation.format;
        let place = prompt_placement::find_prompt_placement(
            view.conversation,
            self.before,
            view.policy.profile,
        );
        let author = format.rules().tools_entry_author;
        let author = author.unwrap_or(Author::Unknown);
        let is_taken = view.policy.profile.tools_entry == Some(format)
            && (place == Some(PromptPlacement::System) || author != Author::System);
        let new = NewItems {
            entries: &format.write_tools_entry(json),
            blocks: None,
        };
        let added =
            is_taken && self.insert_messages(&[OutlineItem::Injected(author)], &new, 0, None);
        if added {
            self.between.tools = set;
        }
        added
    }

    fn add_prompt(&mut self, text: &str, place: PromptPlacement) -> bool {
        let separate = self.last.is_some()
            || matches!(place, PromptPlacement::Message | PromptPlacement::System);
        let block = !separate && place == PromptPlacement::Block;
        let prompt = if block {
            text::escape_text(&format!("{LABEL}\n{text}"))
        } else {
            text::escape_text(text)
        };
        let conversation = self.view.conversation;
        let weights = self.view.token_weights();
        let tokens = weights.count_json_tokens(prompt.as_bytes());
        if separate {
            let (author, block) = match place {
                PromptPlacement::System => (Author::System, None),
                _ => (Author::User, Some(conversation.format.text_block(&prompt))),
            };
            let new = NewItems {
                entries: &conversation.format.text_item(author, &prompt),
                blocks: block.as_deref(),
            };
            let tokens = tokens.saturating_add(weights.message_tokens());
            return self.insert_messages(&[OutlineItem::Injected(author)], &new, tokens, None);
        }
        let between = &mut self.between;
        let mut edits = Edits::default();
        conversation.append_text(self.before, &prompt, &mut edits);
        let insertion = Insertion { edits, round: None };
        between.prompts.insertions.push(insertion);
        if block {
            // `append_text` puts an empty line before it.
            between.block += text::measure_text(b"\\n\\n");
            between.block += text::measure_text(prompt.as_bytes());
        }
        between.tokens = between.tokens.saturating_add(tokens.saturating_add(1));
        true
    }

    fn add_round(
        &mut self,
        messages: &'a [InjectedMessage],
        number: u32,
        drops_reasoning: bool,
    ) -> bool {
        let Some(mut turn) = injected_rounds::parse_round(messages, self.view) else {
            return false;
        };
        if drops_reasoning {
            turn.tokens = turn.tokens.saturating_sub(turn.reasoning_tokens);
        }
        let entries = write_round(self.view.conversation.format, messages, drops_reasoning);
        let new = NewItems {
            entries: &entries,
            blocks: None,
        };
        let reasoned = (!drops_reasoning).then_some((number, messages));
        let inserted = self.insert_messages(&turn.items, &new, turn.tokens, reasoned);
        self.between.round |= inserted;
        if inserted {
            self.between.blocks.extend(turn.blocks);
        }
        inserted
    }

    /// Inserts messages. `reasoned`: the number and the messages of a round that keeps its reasoning. Returns false if they
    /// are not valid here, or if a message may not follow the one before it.
    fn insert_messages(
        &mut self,
        items: &[OutlineItem],
        new: &NewItems<'_>,
        tokens: u32,
        reasoned: Option<(u32, &'a [InjectedMessage])>,
    ) -> bool {
        let profile = self.view.policy.profile;
        let before = self.view.item(self.before);
        let mut last = self.last.unwrap_or(before.author);
        for item in items {
            let role = item.role(self.view.conversation);
            if !prompt_placement::can_follow(last, role, profile) {
                return false;
            }
            // A system message may be between a message and the answer to it.
            if !role.is_system() {
                last = role;
            }
        }
        let next_can_follow = match self.next {
            // If the last author is still that of the message before the gap, then the gap breaks no rule that the client's
            // two messages do not break.
            Some(next) => {
                last == before.author || prompt_placement::can_follow(last, next, profile)
            }
            None => last != Author::Model,
        };
        let conversation = self.view.conversation;
        let first = items.first().map(|item| item.role(conversation));
        let is_answered = self.is_answered || first == Some(Author::Model);
        let (behind, part) = if is_answered {
            (
                conversation.find_last_system(self.before),
                &mut self.between.turns,
            )
        } else {
            (self.before, &mut self.between.prompts)
        };
        let mut edits = Edits::default();
        if !next_can_follow || !conversation.insert_after(behind, new, &mut edits) {
            return false;
        }
        let round = reasoned.map(|(number, messages)| ReasonedRound {
            number,
            behind,
            messages,
        });
        part.insertions.push(Insertion { edits, round });
        part.items.extend(items);
        (self.last, self.is_answered) = (Some(last), is_answered);
        self.between.tokens = self.between.tokens.saturating_add(tokens);
        true
    }
}
