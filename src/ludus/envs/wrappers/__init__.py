"""Environment wrappers by name.

A wrapper is a `gym.Wrapper`. The keys beside `id` in a config are keyword arguments of its constructor, which are
checked against its annotations before anything is made; a wrong value is a ValueError. A class method
`vectorize(venv, **arguments) -> VectorEnv` lets a wrapper work on native backends.

`clip_action` is Gymnasium's own class. The others differ from Gymnasium's in what they do: `max_and_skip` shows no
frame of an earlier step when an episode ends early, `rescale_action` and `scale_observation` clip rounding errors,
`flatten` returns float32, `cast_observation` keeps the space, images leave channels first and match OpenCV, and most
of them also convert whole vectors.
"""

_OURS = "ludus.envs.wrappers."
_CLASSES = {
    "gymnasium.wrappers:ClipAction": "clip_action ClipAction",
    "ludus.envs.suites.old_api:OldApi": "old_api StepAPICompatibility",
    f"{_OURS}actions:RemapActions": "remap_actions DiscreteActionSpaceRemapperWrapper",
    f"{_OURS}actions:RescaleAction": "rescale_action RescaleAction",
    f"{_OURS}actions:StickyActions": "sticky_actions StickyActions StickyAction StickyActionsWrapper",
    f"{_OURS}atari:ALEActionMasking": "ale_action_masking ALEActionMasking ALEActionMaskingWrapper",
    f"{_OURS}atari:EpisodicLife": "episodic_life EpisodicLife EpisodicLifeEnv",
    f"{_OURS}atari:FireReset": "fire_reset FireReset FireResetEnv",
    f"{_OURS}atari:NoopReset": "noop_reset NoopReset NoopResetEnv",
    f"{_OURS}atari_objects:BreakoutFeatures": "breakout_features BreakoutFeatures BreakoutV5_FeatureExtractor",
    f"{_OURS}atari_objects:PongFeatures": "pong_features PongFeatures PongV5_FeatureExtractor",
    f"{_OURS}car_racing:CarControls": "car_controls",
    f"{_OURS}car_racing:CarSkip": "car_skip",
    f"{_OURS}drawings:draw_cart_pole": "draw_cart_pole",
    f"{_OURS}time:FrameStack": "frame_stack FrameStack FrameStackObservation VecObservationStackWrapper",
    f"{_OURS}images:ChannelsFirst": "channels_first",
    f"{_OURS}images:crop": "crop Crop CropObservation",
    f"{_OURS}images:grayscale": "grayscale Grayscale GrayscaleObservation",
    f"{_OURS}images:PixelsOnly": "pixels_only PixelObservationWrapper AddRenderObservation",
    f"{_OURS}images:resize": "resize Resize ResizeObservation",
    f"{_OURS}images:unflatten": "unflatten Unflatten ReshapeObservation",
    f"{_OURS}minigrid:minigrid_image": "minigrid_image ImgObsWrapper",
    f"{_OURS}minigrid:MiniGridRGB": "minigrid_rgb RGBImgPartialObsWrapper",
    f"{_OURS}minigrid:minigrid_symbols": "minigrid_symbols",
    f"{_OURS}observations:cast_observation": "cast_observation CastObservation",
    f"{_OURS}observations:clip_observation": "clip_observation ClipObservation",
    f"{_OURS}observations:discrete_encoder": "discrete_encoder DiscreteEncoder",
    f"{_OURS}observations:Flatten": "flatten FlattenObservation",
    f"{_OURS}observations:mask_observation": "mask_observation MaskObservation MaskObservationWrapper",
    f"{_OURS}observations:normalize_observation": "normalize_observation",
    f"{_OURS}observations:one_hot": "one_hot OneHot OneHotWrapper",
    f"{_OURS}observations:scale_observation": "scale_observation ScaleObservation RescaleObservation",
    f"{_OURS}rewards:ActionReward": "action_reward ActionRewardShaper",
    f"{_OURS}rewards:ClipReward": "clip_reward ClipReward",
    f"{_OURS}rewards:ScaleReward": "scale_reward ScaleReward",
    f"{_OURS}rewards:StateCountBonus": "state_count_bonus MountainCarV0_StateCountBonus",
    f"{_OURS}shaping:CartPoleShaping": "cart_pole_shaping CartPoleV1_RewardShaper",
    f"{_OURS}shaping:MountainCarShaping": "mountain_car_shaping MountainCarV0_RewardShaper",
    f"{_OURS}shaping:PongShaping": "pong_shaping PongShaping PongV5_RewardShaper",
    f"{_OURS}shaping:RetroMarioShaping": "retro_mario_shaping RetroSuperMarioBros_RewardShaper",
    f"{_OURS}shaping:VizDoomShaping": "vizdoom_shaping VizDoom_RewardShaper",
    f"{_OURS}time:FrameSkip": "frame_skip FrameSkip FrameSkipWrapper",
    f"{_OURS}time:MaxAndSkip": "max_and_skip MaxAndSkip MaxAndSkipEnv MaxAndSkipObservation",
    f"{_OURS}time:StopWithoutReward": "stop_without_reward",
    f"{_OURS}time:TimeAware": "time_aware TimeAware",
}
"""Our name of each class first, then the names that other tools give it."""
NAMES = {name: path for path, names in _CLASSES.items() for name in names.split()}
"""Name -> `module:Class`, for `ludus.registry`."""
