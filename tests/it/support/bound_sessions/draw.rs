//! What a session is drawn from: its API, its model, the settings of the proxy before it, and what its client does.

use std::{fmt, time::Duration};

use plimsoll::{
    config::{
        AddTools, CacheMarkers, Config, GuardConfig, ModelConfig, ProviderConfig, SummaryMaker,
    },
    guard::profile::{Profile, find_profile},
};

use super::super::{
    any_settings,
    bound::{BoundApi, BoundModel},
    generate::Random,
    proxy::{model_with_courses, model_with_early_levels, model_with_window},
};

/// A model, and what a client may send it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DrawnModel {
    pub(crate) name: &'static str,
    /// Its thinking is bound to what stood before it.
    pub(crate) checks: bool,
    /// The running turn begins with thinking.
    pub(crate) thinks_first: bool,
    /// `system` entries may stand in the midst.
    pub(crate) takes_system: bool,
}

const fn free_model(name: &'static str) -> DrawnModel {
    DrawnModel {
        name,
        checks: false,
        thinks_first: false,
        takes_system: false,
    }
}

const fn binding_model(name: &'static str) -> DrawnModel {
    DrawnModel {
        checks: true,
        ..free_model(name)
    }
}

const fn takes_system(model: DrawnModel) -> DrawnModel {
    DrawnModel {
        takes_system: true,
        ..model
    }
}

const MESSAGES: &[(u32, DrawnModel)] = &[
    (30, takes_system(binding_model("claude-sonnet-5-5"))),
    (35, takes_system(binding_model("claude-opus-5-5"))),
    (8, takes_system(binding_model("claude-haiku-5-5"))),
    (12, takes_system(free_model("claude-opus-5"))),
    (
        15,
        DrawnModel {
            thinks_first: true,
            ..free_model("claude-haiku-4-5")
        },
    ),
];
const GATEWAY: &[(u32, DrawnModel)] = &[
    (80, binding_model("anthropic/claude-opus-5.5")),
    (20, free_model("anthropic/claude-opus-5")),
];
const RESPONSES: &[(u32, DrawnModel)] = &[
    (85, takes_system(binding_model("gpt-6.2-sol"))),
    (15, takes_system(free_model("gpt-6.1-sol"))),
];

/// One session.
#[derive(Clone, Debug)]
pub(crate) struct DrawnSession {
    pub(crate) seed: u64,
    pub(crate) api: BoundApi,
    pub(crate) model: DrawnModel,
    pub(crate) account: BoundModel,
    pub(crate) profile: &'static Profile,
    pub(crate) requests: usize,
    pub(crate) streams: bool,
    /// In tokens.
    pub(crate) window: u32,
    /// Whether the settings name the window; else the proxy learns it from the first refusal.
    pub(crate) names_window: bool,
    /// Tokens by the provider's count for each by the bytes.
    pub(crate) factor: f64,
    /// Tokens of a usual result.
    pub(crate) result: usize,
    /// Percent of the answers that call a tool of the proxy, where there is one.
    pub(crate) proxy_calls: u32,
    pub(crate) max_tokens: Option<u32>,
    pub(crate) annotates: bool,
    pub(crate) keeps_ids: bool,
    /// The request from which on each asks the provider to clear results by the number of calls (Messages).
    pub(crate) clears_from: Option<usize>,
    /// The system prompt is the first entry of `input` (Responses).
    pub(crate) leads_with_system: bool,
    /// Percent of the requests that the client repeats to keep the provider's cache warm.
    pub(crate) repeats: u32,
    markers: CacheMarkers,
    /// Requests that the provider answers before each of its summaries.
    pub(crate) summaries_late_by: usize,
    summary_maker: SummaryMaker,
    levels: usize,
}

impl DrawnSession {
    pub(crate) fn new(seed: u64) -> Self {
        Self::draw(seed, false)
    }

    /// The client and the provider may do what few do: clear by calls, lead with the system prompt, repeat requests, and
    /// summarise at the provider.
    pub(crate) fn with_events(seed: u64) -> Self {
        Self::draw(seed, true)
    }

    fn draw(seed: u64, has_events: bool) -> Self {
        let mut random = Random::for_part(seed, 1);
        let api = random.weighted(&[
            (50, BoundApi::Messages),
            (26, BoundApi::Responses),
            (12, BoundApi::ReasoningDetails),
            (12, BoundApi::ThinkingBlocks),
        ]);
        let (models, profile) = match api {
            BoundApi::Messages => (MESSAGES, "anthropic"),
            BoundApi::Responses => (RESPONSES, "openai"),
            BoundApi::ReasoningDetails => (GATEWAY, "openrouter"),
            BoundApi::ThinkingBlocks => (GATEWAY, "anthropic"),
        };
        let window = random.weighted(&[(45, 4_096), (40, 8_000), (15, 16_000)]);
        let (adds_markers, is_old) = (random.chance(25), random.chance(25));
        let markers = if api == BoundApi::Messages && adds_markers {
            CacheMarkers::Auto
        } else {
            CacheMarkers::Off
        };
        let mut account = if is_old {
            BoundModel::old()
        } else {
            BoundModel::default()
        };
        // A marker of the proxy makes a block of a string.
        account.equates_strings = markers == CacheMarkers::Auto;
        let model = random.weighted(models);
        let requests = random.sample_quantiles(&[(0, 20), (700, 35), (1_000, 60)]);
        let mut events = Random::for_part(seed, 4);
        let is_messages = api == BoundApi::Messages;
        let clears = has_events && is_messages && events.chance(20);
        account.order_fault = events.weighted(&[
            (80, None),
            (10, Some("compaction_unavailable")),
            (10, Some("compaction: Extra inputs are not permitted")),
        ]);
        Self {
            seed,
            api,
            model,
            account,
            profile: find_profile(profile).unwrap(),
            requests,
            clears_from: clears.then(|| events.between(5, requests / 2)),
            leads_with_system: has_events && api == BoundApi::Responses && events.chance(40),
            // Its budget of thinking is above every such cap.
            repeats: events.weighted(&[(70, 0), (30, 25)])
                * u32::from(has_events && !model.thinks_first),
            summaries_late_by: Random::for_part(seed, 7).below(4),
            summary_maker: if has_events && events.chance(40) {
                SummaryMaker::Provider
            } else {
                SummaryMaker::Proxy
            },
            streams: random.chance(50),
            window,
            names_window: random.chance(85),
            factor: random.weighted(&[(50, 1.0), (20, 0.9), (20, 1.15), (10, 1.4)]),
            result: random.weighted(&[(40, 40), (40, 90), (20, 160)]) * window as usize / 8_000,
            proxy_calls: random.weighted(&[(30, 5), (50, 15), (20, 35)]),
            max_tokens: random.weighted(&[
                (40, None),
                (30, Some(1_000)),
                (20, Some(window / 2)),
                (10, Some(2 * window)),
            ]),
            annotates: random.chance(30),
            keeps_ids: random.chance(50),
            markers,
            levels: random.below(4),
        }
    }

    /// A session of 300 requests in Messages, for a model that binds its thinking.
    pub(crate) fn long(seed: u64, window: u32, account: BoundModel) -> Self {
        Self {
            api: BoundApi::Messages,
            model: MESSAGES[seed as usize % 2].1,
            profile: find_profile("anthropic").unwrap(),
            account,
            requests: 300,
            window,
            names_window: true,
            factor: 1.0,
            result: 300 + window as usize / 200,
            max_tokens: None,
            markers: CacheMarkers::Off,
            clears_from: None,
            leads_with_system: false,
            repeats: 0,
            summary_maker: SummaryMaker::Proxy,
            ..Self::new(seed)
        }
    }

    /// Whether summaries are asked for, from a provider that makes them.
    pub(crate) fn is_summarised_by_provider(&self) -> bool {
        let mut config = Config::default();
        self.set_proxy(&mut config);
        config.compaction.auto
            && self.summary_maker == SummaryMaker::Provider
            && self.account.order_fault.is_none()
            && self.model.checks
            && self.api == BoundApi::Messages
    }

    pub(crate) fn model_settings(&self) -> ModelConfig {
        let settings = match self.levels {
            0 => model_with_window(self.window),
            1 => model_with_early_levels(self.window),
            _ => model_with_courses(self.window),
        };
        ModelConfig {
            context_length: settings.context_length.filter(|_| self.names_window),
            ..settings
        }
    }

    pub(crate) fn set_provider(&self, provider: &mut ProviderConfig) {
        provider.profile = self.profile;
        provider.cache_markers = self.markers;
    }

    pub(crate) fn set_proxy(&self, config: &mut Config) {
        let mut random = Random::for_part(self.seed, 2);
        let tight = random.chance(30);
        config.guard = GuardConfig {
            chars_per_token: random.chance(60).then_some(3.0),
            max_tool_result_chars: tight.then_some(1_000),
            truncate_head_chars: tight.then_some(200),
            truncate_tail_chars: tight.then_some(200),
            ..any_settings(random.next())
        };
        config.recovery.enabled = random.chance(85);
        config.recovery.tools = random.weighted(&[
            (60, AddTools::WhenDue),
            (25, AddTools::Always),
            (15, AddTools::Never),
        ]);
        config.recovery.caution_cadence = random.between(1, 5) as u32;
        config.recovery.critical_countdown = random.between(1, 4) as u32;
        config.recovery.max_tool_result_chars = random.weighted(&[(50, 1_000), (50, 10_000)]);
        config.compaction.auto = random.chance(35);
        config.compaction.by = self.summary_maker;
        config.compaction.threshold = random.weighted(&[(50, 0.4), (50, 0.6)]);
        config.compaction.max_summary_tokens = 400;
        config.compaction.wait = if random.chance(50) && self.summaries_late_by == 0 {
            Duration::from_secs(5)
        } else {
            Duration::ZERO
        };
    }
}

/// Printed with a failure.
impl fmt::Display for DrawnSession {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (api, name, profile) = (self.api, self.model.name, self.profile.name);
        let (streams, window, factor) = (self.streams, self.window, self.factor);
        write!(
            out,
            "{api:?} {name} ({profile}), streams {streams}, window {window} "
        )?;
        write!(
            out,
            "(named {}) x {factor}, {} requests, ",
            self.names_window, self.requests
        )?;
        write!(
            out,
            "max_tokens {:?}, {:?}, clears from {:?}, leads with system {}, ",
            self.max_tokens, self.account.account, self.clears_from, self.leads_with_system
        )?;
        write!(
            out,
            "repeats {} %, summaries by {:?} ({:?}), late by {}",
            self.repeats, self.summary_maker, self.account.order_fault, self.summaries_late_by
        )
    }
}
