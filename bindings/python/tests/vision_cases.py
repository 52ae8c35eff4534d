"""Small networks and ops of torchvision with weights from a formula. ``make_vision_cases.py`` records torchvision's numbers, ``test_vision_cases.py`` compares."""

import hashlib
import json
import math
import zlib


class Cases:
    """The cases, over a ``torch`` and a ``torchvision``."""

    def __init__(self, torch, models, ops, transforms):
        self.torch, self.models, self.ops, self.transforms = torch, models, ops, transforms

    def numbers(self, *shape, step=0.37):
        return self.torch.arange(math.prod(shape), dtype=self.torch.float64).mul(step).sin().reshape(shape).float()

    def fill(self, module):
        """Values that depend on the parameter's name alone."""
        torch = self.torch
        with torch.no_grad():
            for name, t in sorted([*module.named_parameters(), *module.named_buffers()]):
                if not t.is_floating_point() or "relative_coords" in name:
                    continue
                v = torch.arange(t.numel(), dtype=torch.float64).mul(0.7310585).add(zlib.crc32(name.encode()) % 1000 * 0.37).sin()
                if "running_var" in name or t.ndim <= 1 and name.endswith("weight"):
                    v = v * 0.1 + 1
                else:
                    v = v * (0.05 if t.ndim <= 1 else math.sqrt(2.0 * t.shape[0] / t.numel()))
                t.copy_(v.reshape(t.shape).to(t.dtype))
        return module

    @staticmethod
    def keys(module):
        """A digest of the names and shapes of a state dict."""
        return hashlib.sha256(json.dumps([[k, list(v.shape)] for k, v in module.state_dict().items()]).encode()).hexdigest()[:16]

    @staticmethod
    def summary(t):
        t = t.detach().double().reshape(-1)
        return [t.numel(), t.sum().item(), t.abs().sum().item(), *t[:3].tolist()]

    def networks(self):
        """Classes in small sizes, by name: a function that builds one, and the size of its images."""
        m = self.models
        c, e, s, v = m.convnext, m.efficientnet, m.swin_transformer, m.vision_transformer
        mb = m.mobilenetv3.InvertedResidualConfig
        stages = [e.FusedMBConvConfig(1, 3, 1, 8, 8, 1), e.FusedMBConvConfig(4, 3, 2, 8, 16, 1), e.MBConvConfig(4, 3, 2, 16, 24, 2)]
        swin = dict(patch_size=[4, 4], embed_dim=16, depths=[2, 2], num_heads=[2, 4], num_classes=5)
        return {
            "squeezenet": (lambda: m.squeezenet1_1(num_classes=5), 48),
            "densenet": (lambda: m.DenseNet(8, (2, 3), 16, num_classes=5), 32),
            "googlenet": (lambda: m.GoogLeNet(num_classes=5, aux_logits=False, init_weights=False), 32),
            "mobilenet_v2": (lambda: m.MobileNetV2(num_classes=5, width_mult=0.25), 32),
            "mobilenet_v3": (lambda: m.MobileNetV3([mb(16, 3, 32, 16, True, "RE", 2, 1, 1.0), mb(16, 5, 64, 24, False, "HS", 1, 1, 1.0)], 32, num_classes=5), 32),
            "efficientnet": (lambda: m.EfficientNet(stages, 0.2, num_classes=5, last_channel=32), 32),
            "convnext": (lambda: m.ConvNeXt([c.CNBlockConfig(16, 24, 1), c.CNBlockConfig(24, None, 2)], num_classes=5, layer_scale=0.5), 32),
            "swin": (lambda: m.SwinTransformer(window_size=[3, 3], **swin), 28),
            "swin_v2": (lambda: m.SwinTransformer(window_size=[4, 4], block=s.SwinTransformerBlockV2, downsample_layer=s.PatchMergingV2, **swin), 28),
            "vit": (lambda: v.VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=5), 32),
            "mnasnet": (lambda: m.mnasnet0_5(num_classes=5), 32),
            "shufflenet": (lambda: m.ShuffleNetV2([1, 2, 1], [8, 16, 32, 64, 64], num_classes=5), 32),
            "regnet": (lambda: m.RegNet(m.regnet.BlockParams.from_init_params(4, 16, 16.0, 2.0, 8, se_ratio=0.25), num_classes=5), 32),
            "fcn": (lambda: m.segmentation.fcn.FCNHead(16, 5), 0),
            "aspp": (lambda: m.segmentation.deeplabv3.DeepLabHead(8, 3), 0),
        }

    def network(self, name):
        build, side = self.networks()[name]
        net = self.fill(build()).eval()
        x = self.numbers(2, 3, side, side) if side else self.numbers(1, net[0].in_channels if name == "fcn" else 8, 12, 12)
        out = net(x)
        out.square().mean().backward()
        gradients = sum(p.grad.double().abs().sum().item() for p in net.parameters() if p.grad is not None)
        return {"keys": self.keys(net), "out": self.summary(out), "gradients": [gradients]}

    #: Networks as users build them, of which the names of the state dict are compared.
    WHOLE = (
        "alexnet squeezenet1_0 densenet121 googlenet inception_v3 mobilenet_v2 mobilenet_v3_large mobilenet_v3_small efficientnet_b0 efficientnet_v2_s convnext_tiny "
        "swin_t swin_v2_t vit_b_32 mnasnet1_3 shufflenet_v2_x1_5 regnet_y_400mf regnet_x_400mf resnext101_64x4d vgg16_bn r2plus1d_18 fcn_resnet50 deeplabv3_mobilenet_v3_large "
        "lraspp_mobilenet_v3_large fasterrcnn_resnet50_fpn_v2 fasterrcnn_mobilenet_v3_large_320_fpn maskrcnn_resnet50_fpn keypointrcnn_resnet50_fpn "
        "retinanet_resnet50_fpn_v2 fcos_resnet50_fpn ssdlite320_mobilenet_v3_large"
    ).split()

    def whole(self, name):
        parts = {"weights": None, "weights_backbone": None} if name.startswith(("fcn", "deeplab", "lraspp")) or "rcnn" in name or name.startswith(("retina", "fcos", "ssd")) else {}
        if name in ("googlenet", "inception_v3"):
            parts["init_weights"] = False
        if name.startswith(("ssd", "regnet")):
            # These compute with tensors while they are built: they need memory.
            return {"keys": self.keys(self.models.get_model(name, **parts))}
        with self.torch.device("meta"):
            return {"keys": self.keys(self.models.get_model(name, **parts))}

    def detector(self, name):
        """Losses and boxes of a detector over a small backbone."""
        torch, nn, d = self.torch, self.torch.nn, self.models.detection
        body = nn.Sequential(nn.Conv2d(3, 8, 4, stride=4), nn.ReLU(), nn.Conv2d(8, 32, 2, stride=2))
        body.out_channels = 32
        anchors = d.anchor_utils.AnchorGenerator(((8, 16),), ((0.5, 1.0),))
        sizes = dict(min_size=48, max_size=64)
        pool = self.ops.MultiScaleRoIAlign(featmap_names=["0"], output_size=3, sampling_ratio=2)
        rcnn = dict(
            rpn_anchor_generator=anchors, box_roi_pool=pool, box_batch_size_per_image=1000, rpn_batch_size_per_image=10000, box_positive_fraction=1.0,
            rpn_positive_fraction=1.0, rpn_post_nms_top_n_train=12, rpn_post_nms_top_n_test=12, box_score_thresh=0.01, **sizes,
        )
        net = {
            "faster_rcnn": lambda: d.FasterRCNN(body, 3, **rcnn),
            "retinanet": lambda: d.RetinaNet(body, 3, anchor_generator=anchors, score_thresh=0.01, **sizes),
            "fcos": lambda: d.FCOS(body, 3, anchor_generator=d.anchor_utils.AnchorGenerator(((8,),), ((1.0,),)), score_thresh=0.01, **sizes),
        }[name]()
        self.fill(net)
        with torch.no_grad():
            for key, p in net.named_parameters():
                if any(word in key for word in ("cls_score", "cls_logits", "bbox")):
                    p.mul_(0.05)
        images = [self.numbers(3, 40, 50).abs(), self.numbers(3, 44, 36, step=0.41).abs()]
        boxes = [torch.tensor([[5.0, 5, 30, 25], [15, 10, 45, 35]]), torch.tensor([[3.0, 8, 25, 40]])]
        targets = [{"boxes": box, "labels": torch.arange(len(box)) + 1} for box in boxes]
        net.train()
        losses = net(images, targets)
        sum(losses.values()).backward()
        found = {"keys": self.keys(net), **{key: [value.item()] for key, value in losses.items()}}
        found["gradients"] = [sum(p.grad.double().abs().sum().item() for p in net.parameters() if p.grad is not None)]
        net.eval()
        with torch.no_grad():
            for at, one in enumerate(net(images)):
                found[f"boxes {at}"], found[f"scores {at}"] = self.summary(one["boxes"][:3]), self.summary(one["scores"][:3])
        return found

    def functions(self):
        """Ops of regions and boxes: values, and the gradients of their inputs."""
        torch, ops = self.torch, self.ops
        boxes = torch.tensor([[0.0, 1.3, 2.1, 9.7, 8.4], [1.0, -2.0, 0.5, 6.3, 12.9], [1.0, 4.0, 4.0, 4.4, 4.2], [0.0, 20.0, 20.0, 30.0, 31.0], [0.0, 0.0, 0.0, 13.9, 11.9]])
        maps, wide = self.numbers(2, 4, 12, 14), self.numbers(2, 12, 12, 14)
        calls = {
            "roi_align": lambda x: ops.roi_align(x, boxes, (3, 2), 0.9, 2), "roi_align adaptive": lambda x: ops.roi_align(x, boxes, 3, 1.0, -1, aligned=True),
            "roi_align list": lambda x: ops.roi_align(x, [boxes[:2, 1:], boxes[2:, 1:]], 2), "roi_pool": lambda x: ops.roi_pool(x, boxes, (3, 2), 0.8),
            "ps_roi_align": lambda x: ops.ps_roi_align(x, boxes, (3, 2), 0.9, 2), "ps_roi_pool": lambda x: ops.ps_roi_pool(x, boxes[:3], (3, 2), 0.9),
        }
        found = {}
        for name, call in calls.items():
            x = (wide if name.startswith("ps") else maps).clone().requires_grad_()
            out = call(x)
            (out * self.numbers(*out.shape, step=0.7)).sum().backward()
            found[name], found[f"{name} gradient"] = out, x.grad
        x, offset = self.numbers(2, 4, 8, 9), self.numbers(2, 2 * 2 * 6, 4, 5, step=0.9) * 1.5
        mask, weight, bias = self.numbers(2, 2 * 6, 4, 5, step=0.2), self.numbers(6, 2, 3, 2), self.numbers(6)
        inputs = [t.requires_grad_() for t in (x, offset, weight, bias, mask)]
        out = ops.deform_conv2d(x, offset, weight, bias, stride=2, padding=(1, 1), dilation=(1, 2), mask=mask)
        (out * self.numbers(*out.shape, step=0.7)).sum().backward()
        found["deform_conv2d"] = out
        found.update({f"deform_conv2d gradient {at}": t.grad for at, t in enumerate(inputs)})
        a, b = (torch.cat([p[:, :2], p[:, :2] + p[:, 2:].abs() + 0.3], 1) for p in (self.numbers(5, 4) * 3, self.numbers(5, 4, step=0.5) * 3))
        for name in ("generalized_box_iou_loss", "distance_box_iou_loss", "complete_box_iou_loss"):
            found[name] = getattr(ops, name)(a, b)
        found["batched_nms"] = ops.batched_nms(a, self.numbers(5), torch.tensor([0, 1, 0, 1, 0]), 0.2)
        return found

    def pictures(self):
        """Functions of pictures: bytes and floats."""
        torch, t = self.torch, self.transforms
        f, mode = t.functional, t.InterpolationMode
        grey = self.numbers(3, 20, 24).abs()
        bytes_ = grey.mul(255).to(torch.uint8)
        dark = bytes_.div(4, rounding_mode="floor")
        corners = [[0, 0], [23, 0], [23, 19], [0, 19]], [[2, 3], [20, 1], [22, 18], [1, 15]]
        moved = self.numbers(1, 20, 24, 2, step=0.7) * 0.1
        fill = [7.0, 1.0, 0.0]
        found = {
            "sharper": f.adjust_sharpness(bytes_, 2.0), "smoother": f.adjust_sharpness(grey, 0.3), "narrow": f.adjust_sharpness(grey[:, :2], 0.3),
            "contrast": f.autocontrast(dark), "contrast of floats": f.autocontrast(grey * 0.5), "contrast of one colour": f.autocontrast(torch.full_like(bytes_, 9)),
            "equalized": f.equalize(dark), "equalized twice": f.equalize(torch.stack([dark, bytes_])), "equalized of one colour": f.equalize(torch.full_like(bytes_, 9)),
            "perspective": f.perspective(bytes_, *corners, mode.NEAREST, fill), "perspective of floats": f.perspective(grey, *corners, fill=fill),
            "elastic": f.elastic_transform(bytes_, moved, mode.NEAREST), "elastic of floats": f.elastic_transform(grey, moved, fill=fill),
            "rotated": f.rotate(grey, 33.0, mode.BILINEAR, fill=fill), "rotated, zero": f.rotate(grey, 33.0, mode.BILINEAR, fill=0), "rotated, none": f.rotate(grey, 33.0, mode.BILINEAR),
            "affine": f.affine(grey, 20.0, [2, 3], 1.2, [10.0, 3.0], mode.BILINEAR, fill), "linear": t.LinearTransformation(torch.eye(12) * 2, torch.ones(12))(self.numbers(3, 2, 2)),
        }
        policies = {f"policy {p.value}": hashlib.sha256(str(t.AutoAugment(p).policies).encode()).hexdigest()[:16] for p in t.AutoAugmentPolicy}
        return {**policies, **{name: [*self.summary(value), (value.double() * self.numbers(*value.shape, step=0.9)).sum().item()] for name, value in found.items()}}

    def record(self):
        found = {f"network {name}": self.network(name) for name in self.networks()}
        found.update({f"whole {name}": self.whole(name) for name in self.WHOLE})
        found.update({f"detector {name}": self.detector(name) for name in ("faster_rcnn", "retinanet", "fcos")})
        found["functions"] = {name: self.summary(value) for name, value in self.functions().items()}
        found["pictures"] = self.pictures()
        return found
