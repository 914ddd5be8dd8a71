"""`HFLM.loglikelihood` of two texts."""

PACKAGE, EQUAL = "lm_eval", "log-likelihoods"
REQUIRES = ["absl-py==2.5.1", "certifi==2026.10.18", "chardet==6.0.0.post1", "charset-normalizer==3.5.2",
            "cloudpickle==3.1.2", "colorama==0.4.6", "DataProperty==1.1.1", "datasets==5.2.0", "defusedxml==0.7.1",
            "dill==0.4.1", "evaluate==0.4.6", "joblib==1.6.0", "lm_eval==0.4.13", "lxml==6.1.3", "mbstrdecoder==1.1.5",
            "more-itertools==11.2.1", "multiprocess==0.70.19", "narwhals==2.29.0", "nltk==3.10.4", "pandas==3.1.1",
            "pathvalidate==3.3.1", "portalocker==4.4.2", "pyarrow==26.0.1", "pytablewriter==1.2.1",
            "python-dateutil==2.9.0.post0", "pytz==2026.6", "requests==2.34.2", "rouge-score==0.1.2",
            "sacrebleu==2.6.0", "scikit-learn==1.9.1", "scipy==1.17.1", "six==1.17.0", "sqlitedict==2.1.0",
            "tabledata==1.3.5", "tabulate==0.10.0", "tcolorpy==0.1.7", "threadpoolctl==3.8.0", "typepy==1.3.5",
            "urllib3==2.8.0", "word2number==1.1", "xxhash==4.1.0"]


def read(directory, scratch):
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    texts = [("w1 w2 w3", "w4 w5"), ("w6", "w7 w8 w9")]
    asked = [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(texts)]
    found = HFLM(pretrained=directory, device="cpu", dtype="float32", batch_size=1).loglikelihood(asked)
    return {text[0]: repr(value) for text, value in zip(texts, found)}
