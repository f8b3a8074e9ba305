//! Properties of every plan of the guard without injections, for any wire format.
//!
//! A format is checked with generated chat completions, which are translated to it before the guard and back for the
//! strict checker, or with conversations and a checker of its own.

mod damaged;
mod growth;
mod injected;
mod question;

use std::collections::{BTreeSet, HashSet};

use super::{
    generate::GeneratedCase,
    plans::{apply_plan, assert_untouched, guard_again, make_policy},
    strict,
    wide_tools::with_wide_tools,
    without_annotations,
};
use bytes::Bytes;
use plimsoll::{
    config::{GuardConfig, WhenUnsure},
    conversation::{Author, BlockKind, Conversation, Format, Item, units},
    guard::{
        self, Plan, Policy, SessionKnowledge, StandBackReason,
        profile::{PROFILES, Profile},
    },
    json::{scan::Span, text},
};
use proptest::prelude::*;

pub(crate) const WINDOWS: [u32; 5] = [4_096, 8_192, 16_384, 32_768, 128_000];
/// In these, much does not fit whatever is cut.
pub(crate) const SMALL_WINDOWS: [u32; 4] = [1_024, 2_048, 4_096, 8_192];

/// A wire format with a translation from chat completions, and its checker.
#[derive(Clone, Copy)]
pub(crate) struct WireFormat {
    pub(crate) format: Format,
    pub(crate) from_chat: fn(&[u8]) -> Vec<u8>,
    /// The rules that an edit breaks, by the body before it, which is as `from_chat` takes it, and after it.
    pub(crate) broken_rules: fn(&[u8], &[u8], &Profile) -> Vec<strict::Violation>,
}

pub(crate) const CHAT: WireFormat = WireFormat {
    format: Format::Chat,
    from_chat: <[u8]>::to_vec,
    broken_rules: strict::find_broken_rules,
};

/// Eight tools more, which take much of a small window.
fn widen(format: Format, body: &[u8]) -> Vec<u8> {
    with_wide_tools(format, body, 3, 8)
}

pub(crate) const CHAT_WITH_TOOLS: WireFormat = WireFormat {
    from_chat: |chat| widen(Format::Chat, chat),
    broken_rules: |before, after, profile| {
        strict::find_broken_rules(&widen(Format::Chat, before), after, profile)
    },
    ..CHAT
};

pub(crate) const MESSAGES_WITH_TOOLS: WireFormat = WireFormat {
    from_chat: |body| widen(Format::Messages, body),
    broken_rules: |before, after, _| {
        strict::messages::find_broken_rules(&widen(Format::Messages, before), after)
    },
    ..MESSAGES
};

pub(crate) const RESPONSES_WITH_TOOLS: WireFormat = WireFormat {
    from_chat: |body| widen(Format::Responses, body),
    broken_rules: |before, after, profile| {
        let before = widen(Format::Responses, before);
        strict::responses::find_broken_rules(&before, after, profile.results_may_be_apart)
    },
    ..RESPONSES
};

/// Conversations are generated in this format, and not translated.
pub(crate) const MESSAGES: WireFormat = WireFormat {
    format: Format::Messages,
    from_chat: <[u8]>::to_vec,
    broken_rules: |before, after, _| strict::messages::find_broken_rules(before, after),
};

/// Conversations are generated in this format, and not translated.
pub(crate) const RESPONSES: WireFormat = WireFormat {
    format: Format::Responses,
    from_chat: <[u8]>::to_vec,
    broken_rules: |before, after, profile| {
        strict::responses::find_broken_rules(before, after, profile.results_may_be_apart)
    },
};

/// The guard's default settings, with which every budget is kept.
pub(crate) fn settings() -> GuardConfig {
    GuardConfig {
        when_unsure: Some(WhenUnsure::Cut),
        ..GuardConfig::default()
    }
}

/// Answer caps as shares of the window.
pub(crate) fn any_answer_share() -> impl Strategy<Value = f64> {
    prop::sample::select(&[0.01, 0.1, 0.3, 0.5, 0.9, 1.0, 20.0][..])
}

/// The profiles for which the conversation is valid as it is.
pub(crate) fn profiles_of(case: &GeneratedCase) -> Vec<&'static Profile> {
    let fits = |profile: &&Profile| case.recipe.strict || profile.name == "openai";
    PROFILES.iter().filter(fits).collect()
}

/// The bytes of each message; of a user message in blocks, the blocks, since they may have stood beside others.
fn messages(conversation: &Conversation) -> Vec<&[u8]> {
    let shares_entries = conversation.format == Format::Messages;
    let span = |message: &Item| match conversation.blocks_of(message) {
        blocks @ [first, ..] if shares_entries && message.author == Author::User => Span {
            start: first.span.start,
            end: blocks.last().map_or(first.span.end, |last| last.span.end),
        },
        _ => message.span,
    };
    let messages = conversation.items.iter();
    messages
        .map(|message| conversation.span_bytes(span(message)))
        .collect()
}

impl WireFormat {
    /// Indexes a chat body in this format.
    pub(crate) fn read(self, chat: &[u8]) -> Conversation {
        self.index((self.from_chat)(chat).into())
    }

    /// Indexes a body of this format.
    pub(crate) fn index(self, body: Bytes) -> Conversation {
        self.format.index_body(body).expect("a conversation")
    }

    /// The request fits together with its answer cap, wherever an edit could make it fit.
    pub(crate) fn fits_beside_its_answer(
        self,
        chat: &[u8],
        window: u32,
        profile: &'static Profile,
    ) {
        let settings = settings();
        let policy = make_policy(profile, window, &settings);
        let before = self.read(chat);
        let plan = guard::plan(&before, &policy, &SessionKnowledge::default());
        let asked = before.largest_answer_cap().unwrap();
        let after = self.index(apply_plan(&before, &plan));
        let now = after.largest_answer_cap().unwrap();
        let lowered = plan.report.answer_cap.filter(|cap| cap.is_lowered());
        match lowered {
            Some(cap) => assert!(now < asked && now == u64::from(cap.sent)),
            None => assert_eq!(now, asked),
        }
        let halves = u64::from(plan.report.budget.reserve) * 2 >= u64::from(window);
        let inside = profile.checks_answer_cap() && !halves;
        if inside && !plan.report.over_budget && plan.report.stood_back.is_none() {
            let all = u64::from(plan.report.raw_after) + now;
            assert!(all <= u64::from(window), "{all} in {window}");
        }
    }

    /// A request that the provider refuses as too long three times, and that is planned anew each time.
    /// Where the system text alone is too long, no plan fits, and each is valid nevertheless.
    pub(crate) fn check_refused(self, chat: &[u8], window: u32, profile: &'static Profile) {
        let settings = settings();
        let policy = make_policy(profile, window, &settings);
        let before = self.read(chat);
        let mut knowledge = SessionKnowledge::default();
        let mut least = u32::MAX;
        for attempt in 0..4 {
            let plan = guard::plan(&before, &policy, &knowledge);
            let context = format!(
                "window {window}, profile {}, attempt {attempt}",
                profile.name
            );
            if let Some(StandBackReason::Unsound(broken)) = plan.report.stood_back {
                panic!("{context}: unsound plan {broken:?}");
            }
            let after = apply_plan(&before, &plan);
            let broken = (self.broken_rules)(chat, &after, profile);
            assert_eq!(broken, [], "{context}");
            let raw = plan.report.raw_after;
            if raw >= least {
                // The product sends no request again that is not smaller.
                break;
            }
            least = raw;
            let counted = raw + raw / 8;
            knowledge.calibration = knowledge.calibration.learn_refusal(raw, counted);
            knowledge.refused.was_too_long = true;
            knowledge.refused.was_counted = true;
            knowledge.earlier_plan = Some(plan.to_earlier_plan());
        }
    }

    /// All properties of one request with one window and profile.
    pub(crate) fn check(self, chat: &[u8], window: u32, profile: &'static Profile) {
        self.check_with(chat, window, profile, &settings());
    }

    pub(crate) fn check_with(
        self,
        chat: &[u8],
        window: u32,
        profile: &'static Profile,
        settings: &GuardConfig,
    ) {
        let policy = make_policy(profile, window, settings);
        let before = self.read(chat);
        let plan = guard::plan(&before, &policy, &SessionKnowledge::default());
        let context = format!("window {window}, profile {}", profile.name);
        let after = apply_plan(&before, &plan);
        match plan.report.stood_back {
            None => {}
            Some(StandBackReason::Unsound(broken)) => panic!("{context}: unsound plan {broken:?}"),
            Some(_) => {
                assert_eq!(after, before.body, "{context}");
                return;
            }
        }
        let broken = (self.broken_rules)(chat, &after, profile);
        assert_eq!(broken, [], "{context}");
        let (theirs, raw) = (plan.report.sent.total(), plan.report.raw_after);
        assert!(theirs <= raw, "{context}: {theirs} of theirs in {raw}");
        assert!(theirs <= plan.report.shares.total(), "{context}");
        if plan.edits.is_empty() {
            assert_eq!(after.as_ptr(), before.body.as_ptr());
        }
        let after = self.index(after);
        untouched_bytes(&before, &after, &plan, &context);
        pinned_and_newest(&before, &after, &plan, &context);
        // The provider's request has no annotations.
        let after = self.index(without_annotations(&after));
        let again = guard_again(&after, &policy, plan.report.budget.reserve);
        // The plan counts a frame around a paragraph that has none, and those of answers that are read as one once nothing
        // stands between them. It rounds up each text that it adds.
        let (now, said) = (again.report.raw_before, plan.report.raw_after);
        let cleared = plan.report.cleared.as_ref();
        let texts = cleared.map_or(0, |it| it.messages.len())
            + plan.report.truncated.len()
            + plan.report.texts.shortened.len();
        let folded = plan.report.folded;
        let joined = folded.map_or(0, |it| (it.kept + 1).saturating_sub(after.items.len()));
        let frame = policy.token_weights().message_tokens() + 1;
        let most = 16 + texts as u32 + joined as u32 * frame;
        assert!(
            now <= said && said - now <= most,
            "{context}: {now} sent, {said} planned"
        );
        // Where all answers went, another message may be the last before the first one, and so the task.
        let task = |conversation: &Conversation| {
            let task = find_task(conversation);
            task.last().map(|at| conversation.items[at].digest)
        };
        let has_same_task = !plan.report.over_budget || task(&before) == task(&after);
        if has_same_task && has_same_client_texts(&before, &after) {
            assert_eq!(
                String::from_utf8_lossy(&apply_plan(&after, &again)),
                String::from_utf8_lossy(&after.body),
                "{context}: guarding twice changes nothing more"
            );
        }
        question_stays(&before, &after.body, window, &context);
        budget_holds(&before, &plan, &policy, &context);
    }
}

/// Whether what is sent has the same texts of the client's own. It does not where the text is left out from which an element
/// of the client was learnt: what has this element next is then a message of the user.
fn has_same_client_texts(before: &Conversation, after: &Conversation) -> bool {
    let read = |conversation: &Conversation| -> HashSet<(u128, bool)> {
        let items = conversation.items.iter();
        items.map(|item| (item.digest, item.by_client)).collect()
    };
    let (before, after) = (read(before), read(after));
    let mut other = after.difference(&before);
    !other.any(|&(digest, by_client)| before.contains(&(digest, !by_client)))
}

/// Only edited spans differ; all other bytes are kept in order.
fn untouched_bytes(before: &Conversation, after: &Conversation, plan: &Plan, context: &str) {
    assert_untouched(before, &after.body, plan, context);
    // A message that is neither truncated, cleared nor folded is the client's.
    let truncated = &plan.report.truncated;
    let cleared = plan.report.cleared.as_ref();
    let cleared = cleared.map_or(&[][..], |cleared| &cleared.messages);
    for cut in truncated {
        assert!(!cleared.contains(&cut.message), "{context}: told twice");
    }
    let theirs = messages(before);
    // Bound messages that stand elsewhere lose their cache markers.
    let had_markers = |item: &Item| {
        let marked = |item: &&Item| before.blocks_of(item).iter().any(|block| block.marked);
        let bound = before.items.iter().filter(|item| item.is_bound);
        item.is_bound && bound.filter(marked).any(|it| it.digest == item.digest)
    };
    let blocks: Vec<_> = before
        .blocks
        .iter()
        .map(|it| before.span_bytes(it.span))
        .collect();
    // In Responses, two answers without a message between them are read as one.
    let is_joined = |message: &Item| {
        let mut parts = after.blocks_of(message).iter();
        before.format == Format::Responses
            && message.author == Author::Model
            && parts.all(|part| blocks.contains(&after.span_bytes(part.span)))
    };
    let odd: Vec<_> = messages(after)
        .into_iter()
        .zip(&after.items)
        .filter(|(message, item)| {
            !theirs.contains(message) && !had_markers(item) && !is_joined(item)
        })
        .collect();
    // Where roles alternate, the note is a paragraph of the task, and a word of the model may follow it.
    let is_word = |message: &[u8]| String::from_utf8_lossy(message).contains("\"Understood.\"");
    let words = odd.iter().filter(|(message, _)| is_word(message)).count();
    let folds = usize::from(plan.report.folded.is_some()) * (1 + words.min(1));
    assert!(
        odd.len()
            <= truncated.len()
                + cleared.len()
                + folds
                + shortened(plan).len()
                + plan.report.reasoning_left_out.count(),
        "{context}: {}",
        odd.len()
    );
}

/// The messages that a cap or a share shortened.
fn shortened(plan: &Plan) -> BTreeSet<usize> {
    let texts = &plan.report.texts.shortened;
    texts.iter().map(|text| text.message).collect()
}

/// No system message goes, wherever it stands, and they keep their order. Only the plan's caps shorten them.
fn assert_system_messages_stay(
    before: &Conversation,
    after: &Conversation,
    plan: &Plan,
    context: &str,
) {
    let shortened = shortened(plan);
    let mut sent = after.items.iter().filter(|item| item.author.is_system());
    let count = sent.clone().count();
    let system = before.items.iter().enumerate();
    let system: Vec<_> = system.filter(|(_, item)| item.author.is_system()).collect();
    assert!(count >= system.len(), "{context}: a system message went");
    for (at, item) in system.into_iter().filter(|(at, _)| !shortened.contains(at)) {
        let text = String::from_utf8_lossy(before.span_bytes(item.span));
        let stays = sent.any(|sent| sent.digest == item.digest);
        assert!(stays, "{context}: system message {at} went: {text}");
    }
}

/// Bytes of a longer text that stay at each end where it is an attachment.
const LEAST_END: usize = 12;

/// Whether a message is message `at`, of which only attachments may have changed: of texts with fences or tags and of
/// long ones, the ends stay; the others stay whole.
fn keeps_words(before: &Conversation, at: usize, after: &Conversation, now: &Item) -> bool {
    let sent = after.span_bytes(now.span);
    let is_sent = |text: &[u8]| memchr::memmem::find(sent, text).is_some();
    let mut has_attachment = {
        let mut blocks = before.blocks_of(&before.items[at]).iter();
        blocks.any(|it| matches!(it.kind, BlockKind::Media | BlockKind::Opaque))
    };
    let stays = before.texts_of(&before.items[at]).all(|text| {
        let text = before.raw_bytes(text);
        let encloses = |mark: &&str| memchr::memmem::find(text, mark.as_bytes()).is_some();
        let may_change = text.len() > 1_000 || ["```", "~~~", "</"].iter().any(encloses);
        has_attachment |= may_change;
        let end = LEAST_END.min(text.len());
        if may_change {
            is_sent(&text[..end]) && is_sent(&text[text.len() - end..])
        } else {
            is_sent(text)
        }
    });
    stays && has_attachment
}

fn pinned_and_newest(before: &Conversation, after: &Conversation, plan: &Plan, context: &str) {
    assert_system_messages_stay(before, after, plan, context);
    let shortened = shortened(plan);
    let system = |conversation: &Conversation| {
        let items = conversation.items.iter();
        items.filter(|item| item.author.is_system()).count()
    };
    assert_eq!(system(before), system(after), "{context}: system messages");
    for at in find_task(before) {
        let task = &before.items[at];
        let was = String::from_utf8_lossy(before.span_bytes(task.span)).into_owned();
        let note = text::escape_text(guard::NOTE);
        let mut users = after.items.iter();
        // A paragraph of the guard's may stand at the end of it.
        let stays = users.any(|now| {
            now.author == Author::User
                && (now.digest == task.digest
                    || String::from_utf8_lossy(after.span_bytes(now.span)).contains(&note)
                    || keeps_words(before, at, after, now))
        });
        assert!(
            stays || shortened.contains(&at),
            "{context}: the task went: {was}"
        );
    }
    // An older system message may stand behind the newest message.
    let newest = |conversation: &Conversation| {
        let mut items = conversation.items.iter();
        items.rposition(|item| !item.author.is_system())
    };
    let (Some(at), Some(now)) = (newest(before), newest(after)) else {
        return;
    };
    let (last, now) = (&before.items[at], &after.items[now]);
    assert_eq!(
        last.author, now.author,
        "{context}: the newest message went"
    );
    let mut truncated = plan.report.truncated.iter();
    assert!(
        truncated.any(|truncated| truncated.message == at)
            || shortened.contains(&at)
            || last.digest == now.digest
            || before.items.len() == 1,
        "{context}"
    );
}

/// The first user message, and in Responses the last one that follows it directly.
fn find_task(conversation: &Conversation) -> impl Iterator<Item = usize> {
    let items = &conversation.items;
    let is_user = |item: &Item| item.author == Author::User;
    let first = items.iter().position(is_user);
    let row = items.iter().enumerate().skip(first.unwrap_or(items.len()));
    let row = row.take_while(|(_, item)| is_user(item) || item.author.is_system());
    let last = row.filter(|(_, item)| is_user(item)).last();
    let last = last.filter(|(_, item)| item.span.len() <= units::MAX_TASK_BYTES);
    let last = last.filter(|_| conversation.format == Format::Responses);
    let last = last.map(|(at, _)| at).filter(|&at| Some(at) != first);
    first.into_iter().chain(last)
}

/// The user's newest words stay, whatever the client says behind them, unless they take much of the window.
fn question_stays(before: &Conversation, after: &[u8], window: u32, context: &str) {
    let question = question::find_question(before);
    // Caps and priorities may shorten an annotated text.
    let Some(question) = question.filter(|&at| before.annotations_of(at).is_empty()) else {
        return;
    };
    let item = &before.items[question];
    let has_texts_alone = before.texts_of(item).count() == before.blocks_of(item).len().max(1);
    let is_short = has_texts_alone && item.span.len() < window as usize / 32;
    for text in before.texts_of(item) {
        let text = before.raw_bytes(text);
        let stays = memchr::memmem::find(after, text).is_some();
        assert!(
            stays || !is_short,
            "{context}: the question went: {}",
            String::from_utf8_lossy(text)
        );
    }
}

/// The budget holds whenever the pinned messages and the newest step with its shortest results fit. Without usage it
/// may be passed by the error of the estimate, where the settings say so.
fn budget_holds(before: &Conversation, plan: &Plan, policy: &Policy<'_>, context: &str) {
    let units = units::split_units(before);
    let profile = policy.profile;
    let sends = policy.settings.when_unsure != Some(WhenUnsure::Cut) && profile.refuses_overflow;
    let budget = match plan.report.budget.tokens {
        tokens if sends => tokens + tokens * 7 / 100,
        tokens => tokens,
    };
    if plan.report.raw_after <= budget {
        return;
    }
    let first = units
        .iter()
        .position(|unit| unit.kind == units::UnitKind::User);
    let mut newest = units.len().saturating_sub(2);
    // The reasoning of the newest step may stand in the steps before it.
    while units[newest..]
        .iter()
        .take(2)
        .any(|it| it.follows_reasoning || it.kind == units::UnitKind::Results)
    {
        newest -= 1;
    }
    // With thinking enabled, the answers of the running turn may have to begin with one of these.
    let thinks = |unit: &units::Unit| {
        let blocks = before.blocks_of(&before.items[unit.messages.start]);
        let first = blocks.first().map(|block| block.kind);
        before.begins_turns_with_thinking() && matches!(first, Some(BlockKind::Reasoning(_)))
    };
    let weights = policy.token_weights();
    let mut least = plan.report.shares.tools + 200;
    for (at, unit) in units.iter().enumerate() {
        let is_fixed = !unit.is_removable() || unit.loader.is_some();
        let stays = is_fixed || at >= newest || first.is_some_and(|first| at <= first);
        let is_tied = unit.bond.is_some_and(|bond| bond.last >= newest);
        let stays = stays || thinks(unit) || is_tied;
        let messages = before.items[unit.messages.clone()].iter();
        for message in messages.filter(|message| stays || message.is_bound) {
            let sizes = &message.sizes;
            least += guard::estimate::estimate_message(before, message, sizes, &weights);
        }
    }
    assert!(
        least > budget,
        "{context}: {} over {budget}, least {least}",
        plan.report.raw_after
    );
}
