//! Reproducible stories: a session with recovery, and one whose model has a smaller window than
//! configured.

use crate::support::{
    Agent, Mixing, ModelSetup, NoticeManner, RunningModel, TestClient, Worker, words,
};

/// The configured window, which is larger than the model's.
pub(super) const CLAIMED: u32 = 128_000;

pub(super) struct Story {
    /// Also the provider's name.
    pub(super) name: &'static str,
    pub(super) claimed: u32,
    window: u32,
    manner: NoticeManner,
    stream: bool,
    pub(super) generations: usize,
}

const RECOVERS: Story = Story {
    name: "follows",
    claimed: 20_000,
    window: 20_000,
    manner: NoticeManner::Follows,
    stream: false,
    generations: 64,
};

const OVERFLOWS: Story = Story {
    name: "overflows",
    claimed: CLAIMED,
    window: 20_000,
    manner: NoticeManner::Ignores,
    stream: false,
    generations: 40,
};

pub(super) const STORIES: [Story; 6] = [
    RECOVERS,
    Story {
        name: "follows_streamed",
        stream: true,
        ..RECOVERS
    },
    Story {
        name: "ignores",
        manner: NoticeManner::Ignores,
        ..RECOVERS
    },
    Story {
        name: "ignores_streamed",
        manner: NoticeManner::Ignores,
        stream: true,
        ..RECOVERS
    },
    OVERFLOWS,
    Story {
        name: "overflows_streamed",
        stream: true,
        ..OVERFLOWS
    },
];

impl Story {
    pub(super) async fn start_model(&self) -> RunningModel {
        let worker = Worker::new(self.manner, Mixing::Never);
        let model = ModelSetup::new(self.window);
        model.start(move |heard| worker.compose_reply(heard)).await
    }

    pub(super) fn agent(&self, proxy: impl Into<TestClient>) -> Agent {
        let model = format!("{}/m", self.name);
        let mut agent = Agent::new(proxy)
            .set("stream", self.stream)
            // Stories begin with the same messages and run at the same time, so each has its own
            // session.
            .set("user", self.name)
            .set("model", model);
        agent.messages[0]["content"] = words(6_000, 0).into();
        agent.result = match self.claimed {
            CLAIMED => |nth| words(700, nth + 1),
            _ => |nth| words(85, nth + 1),
        };
        agent
    }

    /// Asserts that the story went as it should.
    pub(super) async fn is_told(&self, up: &RunningModel) {
        up.assert_no_faults();
        if self.claimed == CLAIMED {
            // One request was refused, once; no replica had to learn it again.
            assert_eq!(up.overflows(), 1, "{}", self.name);
            return;
        }
        assert_eq!(up.overflows(), 0, "{}", self.name);
        let bodies = up.bodies().await;
        let said = |text: &str| {
            let holds = |body: &&serde_json::Value| body.to_string().contains(text);
            bodies.iter().filter(holds).count()
        };
        assert!(said("[Context notice, ") > 10, "{}", self.name);
        assert!(said("Course 2 of this conversation") > 0, "{}", self.name);
        let follows = self.manner == NoticeManner::Follows;
        assert_eq!(said("the datum is in metres") > 0, follows, "{}", self.name);
    }
}
